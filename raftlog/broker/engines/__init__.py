"""The engines on which the metadata group can run; see `raftlog.metadata.engine`."""
