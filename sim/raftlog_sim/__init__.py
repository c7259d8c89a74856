"""Deterministic simulation: whole clusters of the product's own brokers, from one seed.

A world is a heap of (instant, sequence, action). The real Broker, storage and client core run on
simulated networks, disks and clocks; nothing of ours is patched.

Laws: same seed, same bytes; every option drawn from a seed is printed.
Imports: raftlog.broker and below, raftlog.verify, raftlog.client.core; only shell/trio_world.py
may import raftlog.runtime. The product never imports this package.
"""
