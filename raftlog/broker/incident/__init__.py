"""Records the inputs of a broker from its boot on, so that it can be played again.

`recorder` stands around one Broker and writes rows; `reading` reads them; `raftlog_sim` plays them.
No I/O happens here: rows go to a `RecordingSink`, payloads to `Payloads`, and both are handed in.
May be imported by: runtime, embed, cli and raftlog_sim.
"""
