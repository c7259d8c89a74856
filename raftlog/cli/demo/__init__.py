"""`raftlog demo`: real data through a real cluster, two real faults, and a proof."""
