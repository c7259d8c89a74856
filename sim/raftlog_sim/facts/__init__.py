"""Facts about a world, looked up there and never asked of a broker: leaders, logs, files."""
