"""Looking for failures and at them: planted bugs, shrinking, the bug base and the debugger."""
