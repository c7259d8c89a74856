"""Scenarios of the simulator, played on broker processes: `raftlog chaos run`.

`plan` says which steps real processes can do, `stage` does them at their instants, `workload` is
the built-in one and `program` the user's own; `run` puts a run together.
"""
