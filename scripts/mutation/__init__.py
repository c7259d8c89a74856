"""Mutants made by a program: small changes of the sources, hunted by tests and then by seeds."""
