"""Other people's Kafka clients behind one face; `clients.face` says what a workload may ask."""
