"""The ground of every test of the simulator: it is alone in its process."""

import threading

import pytest

BROKERS_THREAD = "raftlog brokers"  # of a `Cluster` in one process; tests/embed look for it too


@pytest.fixture(autouse=True)
def _no_real_brokers_beside() -> None:
    """Many tests here patch the product's classes, and look at what every broker then does. A real
    cluster of some longer-lived fixture would be patched too, and be seen."""
    assert BROKERS_THREAD not in {thread.name for thread in threading.enumerate()}, (
        "a cluster runs in this process: give its fixture a process of its own"
    )
