"""The commands of `raftlog sim`, one module each. They only parse arguments and print results."""
