"""The judge: histories in, verdicts out (floor 3).

One history format for the simulator, black-box tests, the demo, embedding and imports. A verdict
is valid, invalid or unknown, and comes with the smallest witness found.

Laws: no I/O, streams are handed in; the judge imports nothing of the judged: raftlog.base only.
May be imported by: everything above it, raftlog_sim and jepsen_style_tests.
"""
