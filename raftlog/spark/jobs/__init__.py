"""The parts of the verification job. Spark runs each of them over all blocks or keys."""
