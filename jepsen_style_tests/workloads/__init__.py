"""The workloads: the actions of clients while brokers break. `workloads.all.WORKLOADS` is the
table."""
