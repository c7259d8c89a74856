"""Nothing in a simulated run asks the real world for time or dice: each such call raises."""

import os
import random
import secrets
import threading
import time
import uuid

import pytest
from raftlog_sim.playing.seeds import drawn

ESCAPES = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")),
    (random, ("random", "randrange", "choice", "shuffle", "getrandbits")),
    (secrets, ("token_bytes", "randbelow", "token_hex")),
    (uuid, ("uuid1", "uuid4")),
    (os, ("urandom", "getrandom")),
)


class EscapedError(BaseException):
    """Not an Exception: no handler may swallow it."""


def escape(name, real):
    here = threading.get_ident()

    def call(*arguments, **more):
        # A thread that an earlier test's library left behind (Spark's gateway) is none of the run.
        if threading.get_ident() != here:
            return real(*arguments, **more)
        raise EscapedError(name)

    return call


@pytest.fixture
def _no_escape(monkeypatch):
    for module, names in ESCAPES:
        for name in names:
            real = getattr(module, name)
            monkeypatch.setattr(module, name, escape(f"{module.__name__}.{name}", real))


@pytest.mark.usefixtures("_no_escape")
def test_a_run_starts_no_thread():
    """So that what other threads do is none of its doing."""
    before = threading.active_count()
    drawn(1, "swarm").play()
    assert threading.active_count() == before


@pytest.mark.usefixtures("_no_escape")
@pytest.mark.parametrize(("seed", "profile"), [(1, "swarm"), (7, "swarm"), (2, "wide")])
def test_a_run_asks_the_real_world_for_nothing(seed, profile):
    assert drawn(seed, profile).play().failure == ""


@pytest.mark.usefixtures("_no_escape")
def test_what_would_escape_is_caught():
    with pytest.raises(EscapedError, match=r"time\.monotonic"):
        time.monotonic()
