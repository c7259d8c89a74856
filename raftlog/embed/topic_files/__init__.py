"""Topics as files: a folder that one cluster exports and another one imports, as a test's fixture.

    manifest.json               topics, settings, offsets: see `manifest`
    SHA256SUMS                  of all other files, as `sha256sum -c SHA256SUMS` reads it
    topics/<topic>/<n>.batches  the record batches of a partition, back to back: see `plain`

`exporting` writes a folder, `folder` reads and checks one, `importing` creates its topics. The
whole folder is read and checked before any topic is created in a cluster.

Laws: a file's name is made from a checked topic name and a number, never read from a file. Only
regular files are read. At most one batch of each of a few partitions is in memory.
"""
