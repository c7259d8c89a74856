"""The measurements of `scripts/bench`, one module each."""
