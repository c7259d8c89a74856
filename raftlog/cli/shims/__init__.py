"""Commands with the flags, the output and the exit codes of Kafka's own tools."""
