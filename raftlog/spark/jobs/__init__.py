"""The parts of the verification job, each a question that Spark answers over all blocks."""
