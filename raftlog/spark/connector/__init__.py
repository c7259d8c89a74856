"""format("raftlog") as Spark sees it: the source, the sink, the stream, and their options."""
