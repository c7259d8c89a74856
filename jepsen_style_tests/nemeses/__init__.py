"""The faults, a module per kind; `nemeses.all.NEMESES` is the table."""
