"""A simulated cluster in virtual time: a heap of events, machines, disks, clocks and a network."""
