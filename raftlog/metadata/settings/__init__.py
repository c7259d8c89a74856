"""Settings of topics and brokers: which there are, and how a change of them is judged."""
