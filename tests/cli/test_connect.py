"""The error of a command when no broker listens. It was sixteen seconds of silence, then an inner
word."""

import socket
from contextlib import ExitStack

import pytest
import trio

from raftlog.base.errors import OperatingError
from raftlog.base.units import millis
from raftlog.cli import connect
from raftlog.runtime.local.ports import HOST, free_ports

COMMANDS = [
    ("topics", "list"),
    ("topics", "create", "t"),
    ("consume", "t"),
    ("produce", "t"),
    ("cluster", "status"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_accepts_a_connection(command, raftlog, monkeypatch):
    monkeypatch.setattr(connect, "REACH_SECONDS", 0.5)
    one, other = free_ports(2)
    servers = f"{HOST}:{one},{HOST}:{other}"
    ran = raftlog(*command, "-b", servers)
    assert (ran.code, ran.out) == (1, "")
    first, last, advice = ran.err.splitlines()
    assert first == f"raftlog: no broker accepts a connection at {servers} yet; trying for 0.5 s"
    assert last == f"raftlog: no broker accepts a connection ({servers})"
    assert "`raftlog up`" in advice
    as_json = raftlog(*command, "-b", servers, "--format", "json")
    assert as_json.code == 1
    assert as_json.json_error["on"] == servers
    assert "`raftlog up`" in as_json.json_error["do"]


async def test_it_is_said_at_once_and_a_broker_that_comes_is_found(capfd):
    (port,) = free_ports(1)
    said = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect.reach, f"{HOST}:{port}")
        with trio.fail_after(connect.REACH_SECONDS - 1):
            while "trying for 5 s" not in said:
                await trio.sleep(0.01)
                said += capfd.readouterr().err
        (listener,) = await trio.open_tcp_listeners(port, host=HOST)
        await (await listener.accept()).aclose()
        await listener.aclose()
    assert said.count("\n") == 1


async def test_an_address_that_neither_accepts_nor_refuses_is_told_of_too(capfd, monkeypatch):
    monkeypatch.setattr(connect, "REACH_SECONDS", 2.5)
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind((HOST, 0))
        full.listen(0)
        address = full.getsockname()
        for _ in range(8):  # beyond the backlog the kernel answers nothing
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        with pytest.raises(OperatingError, match="no broker accepts"):
            await connect.reach(f"{HOST}:{address[1]}")
    assert "yet; trying for 2.5 s" in capfd.readouterr().err


def test_a_name_that_does_not_exist_is_told(raftlog, monkeypatch):
    monkeypatch.setattr(connect, "REACH_SECONDS", 0.5)
    ran = raftlog("topics", "list", "-b", "no-such-host.invalid:9092")
    assert ran.code == 1
    assert "no broker accepts a connection: no-such-host.invalid: " in ran.err


def test_where_one_accepts_the_own_timeout_of_the_command_stays(raftlog, monkeypatch):
    monkeypatch.setattr(connect, "PATIENCE", millis(700))
    monkeypatch.setattr(connect, "REACH_SECONDS", 60.0)
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        address = f"{HOST}:{silent.getsockname()[1]}"
        (nobody,) = free_ports(1)
        ran = raftlog("topics", "list", "-b", f"{HOST}:{nobody},{address}")
    assert ran.code == 1
    assert "no answer in time" in ran.err
    assert "trying for" not in ran.err
    assert "withdrawn" not in ran.err
