"""Clients of a world: producers, readers, members of groups, and clients that lie."""
