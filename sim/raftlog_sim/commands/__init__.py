"""The commands of `raftlog sim`, one module each: they parse, print, and know nothing else."""
