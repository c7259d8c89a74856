"""What clients do while brokers break; `workloads.all.WORKLOADS` is the table."""
