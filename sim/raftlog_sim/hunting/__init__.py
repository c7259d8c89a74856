"""Finds failures and looks at them: planted bugs, shrinking, the bug base and the debugger."""
