"""Scenarios of the simulator, played on broker processes: `raftlog chaos run`.

`plan` decides which steps real processes can play. `stage` plays them at their instants. `workload`
is the built-in workload and `program` the user's own. `run` puts a run together.
"""
