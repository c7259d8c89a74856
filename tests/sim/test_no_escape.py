"""Nothing in a simulated run asks the real world for time or dice: each such call raises."""

import os
import random
import secrets
import time
import uuid

import pytest
from raftlog_sim.seeds import drawn

ESCAPES = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "sleep")),
    (random, ("random", "randrange", "choice", "shuffle", "getrandbits")),
    (secrets, ("token_bytes", "randbelow", "token_hex")),
    (uuid, ("uuid1", "uuid4")),
    (os, ("urandom", "getrandom")),
)


class EscapedError(BaseException):
    """Not an Exception: nobody may swallow it."""


def escape(name):
    def call(*arguments, **more):
        raise EscapedError(name)

    return call


@pytest.fixture
def _no_escape(monkeypatch):
    for module, names in ESCAPES:
        for name in names:
            monkeypatch.setattr(module, name, escape(f"{module.__name__}.{name}"))


@pytest.mark.usefixtures("_no_escape")
@pytest.mark.parametrize(("seed", "profile"), [(1, "swarm"), (7, "swarm"), (2, "wide")])
def test_a_run_asks_the_real_world_for_nothing(seed, profile):
    assert drawn(seed, profile).play().failure == ""


@pytest.mark.usefixtures("_no_escape")
def test_what_would_escape_is_caught():
    with pytest.raises(EscapedError, match=r"time\.monotonic"):
        time.monotonic()
