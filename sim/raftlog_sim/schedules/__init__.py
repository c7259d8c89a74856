"""A run as explicit data: its options, its steps, and how a seed draws both."""
