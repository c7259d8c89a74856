"""The rules by which a command changes the image: brokers, controllers, topics, partitions."""
