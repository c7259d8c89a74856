"""Data directories: founding, their store of votes and marks, and moves between them."""
