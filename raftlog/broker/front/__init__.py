"""Clients as a broker sees them: connections, requests, their share of memory, their leaders."""
