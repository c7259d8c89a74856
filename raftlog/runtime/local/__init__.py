"""A cluster of broker processes on this machine: `raftlog up` and the tests start it."""
