"""The Kafka wire protocol without I/O: bytes to views, values to buffers (floor 3).

Codecs are generated lazily per (API, version) from checked-in tables of Kafka's published message
schemas. One table says which APIs and versions exist; ApiVersions and the docs come from it.

Laws: no I/O; every length is bounded before it is believed; views in, no copies of records.
May be imported by: metadata and above, the client among them. Imports: records and base.
Strangers: raft, storage, verify.
"""
