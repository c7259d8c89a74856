"""The commands of administration: settings, moves of partitions, leaders, disks, brokers."""
