"""Recordings of brokers: kept, found again, and played through the same Broker."""
