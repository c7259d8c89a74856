"""The state machine that every replica of an internal topic runs, and what feeds it."""
