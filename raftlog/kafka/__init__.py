"""The Kafka wire protocol without I/O: bytes to views, values to buffers (floor 3).

Codecs are generated lazily per (message, version) from checked-in tables of Kafka's published
message schemas. One table says which APIs and versions exist; ApiVersions and docs come from it.

Laws: no I/O; every length is bounded before it is believed; views in, no copies of records; nothing
but ProtocolError leaves a decoder. May be imported by: metadata and above, the client among them.
Imports: records and base. Strangers: raft, storage, verify.

Where to begin: `codec` (frames to messages and back), `messages` (the values), `frames` (cutting),
`connection` (both ends of a conversation), `versions` (what is served), `error_codes` and
`error_bodies` (refusals), `embedded` (structs inside other fields). `tables`, `shape`, `source`,
`decode_text`, `encode_text`, `compile` and `wire` make the functions; only this folder uses them.
"""
