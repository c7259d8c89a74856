"""The metadata: its log, the controller that leads it, and each broker's part in it."""
