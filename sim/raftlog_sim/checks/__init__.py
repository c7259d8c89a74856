"""The invariants, by subject; `invariants` feeds them all after every turn."""
