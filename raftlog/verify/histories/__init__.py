"""Histories: the format, reading it, and pairing calls with their answers into operations."""
