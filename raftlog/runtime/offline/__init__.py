"""Work on data directories that no broker has open: what `raftlog recover` does."""
