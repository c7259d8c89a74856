"""The `raftlog` command: a thin skin over the Python API, one module per noun or verb (floor 9).

Laws: each command has help with an example and --format json; exit codes are 0 done or valid,
1 failed or invalid, 2 unknown, 64 usage, 130 interrupted; no tracebacks for a user's mistake.
May be imported by: raftlog.__main__ alone. Imports: every floor below. The simulator is run as a
process, never imported.
"""
