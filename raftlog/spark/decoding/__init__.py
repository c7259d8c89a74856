"""Decoders from record batches to Arrow columns: compiled, vectorised, and plain."""
