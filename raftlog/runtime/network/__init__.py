"""Connections of a broker: byte streams, frames, client connections and links between brokers."""
