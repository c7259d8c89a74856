"""What `scripts/bench` runs: one module per thing measured."""
