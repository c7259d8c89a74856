"""The tests: raftlog's folders, and what belongs to no folder (see README.md)."""
