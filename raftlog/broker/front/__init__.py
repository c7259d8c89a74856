"""Serves clients: connections, requests, their share of memory, their leaders."""
