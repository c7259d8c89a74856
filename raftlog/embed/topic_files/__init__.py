"""Topics as files: a folder that one cluster exports and another one imports, as a test's fixture.

    manifest.json               topics, settings, offsets: see `manifest`
    SHA256SUMS                  of all other files, as `sha256sum -c SHA256SUMS` reads it
    topics/<topic>/<n>.batches  the record batches of a partition, back to back: see `plain`

`exporting` writes a folder, `folder` reads and checks one, `importing` makes its topics. All of it
is read and checked before anything is made in a cluster.

Laws: a file's name comes from a checked topic name and a number, never out of a file; files are
regular ones; at most one batch of each of a few partitions is in memory.
"""
