"""Segment files: their format, their indexes, walks through them, and jobs on them."""
