"""A boot of a replica from its files: recovery, and reading around damage."""
