"""Everything that decides a verdict: facts of a history, and each class of anomaly."""
