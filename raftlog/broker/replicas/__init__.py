"""The replicas that a broker runs: their rounds, their peers, their places, and how they end."""
