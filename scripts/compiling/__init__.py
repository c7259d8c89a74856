"""Compiles product and simulator.

`rewriting` turns a module's text into one that mypyc compiles well. `named_fields` does what needs
types. `build` compiles everything.
"""
