"""Faults that befall a cluster: `nemesis` strikes them, `atlas` says what damage is allowed."""
