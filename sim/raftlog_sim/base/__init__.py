"""Ground that every room of the simulator stands on: keyed randomness, violations, outcomes."""
