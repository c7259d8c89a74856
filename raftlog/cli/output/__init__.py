"""Prints for commands: text, JSON, progress, and views of topics and groups."""
