"""Real namespaces, where root allows them: packets of one direction are dropped, and pass again."""

import socket
import subprocess
import sys

import pytest

from jepsen_style_tests import namespaces
from jepsen_style_tests.namespaces import Namespaces
from raftlog.base.errors import OperatingError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing() or "none"),
]

PORT = 5000
PATIENT = 30
ECHO = f"""
import socket, sys
with socket.create_server((sys.argv[1], {PORT})) as server:
    print("listening", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(b"here")
        connection.close()
"""
ASK = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT}), float(sys.argv[2])) as connection:
    sys.exit(0 if connection.recv(4) == b"here" else 1)
"""


@pytest.fixture
def network():
    made = Namespaces()
    made.up([1, 2])
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def echo(network):
    command = [*network.prefix(1), sys.executable, "-c", ECHO, network.address(1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"listening\n"
        yield
        server.kill()


def reached(network, seconds: float = PATIENT) -> bool:
    """Whether an answer arrives; a caller that expects one waits as long as a busy machine may
    need."""
    command = [*network.prefix(2), sys.executable, "-c", ASK, network.address(1), str(seconds)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("flows", [[(1, 2)], [(2, 1)], [(1, 2), (2, 1)]])
def test_what_is_cut_does_not_arrive_and_then_it_does(network, echo, flows):
    assert reached(network)
    network.drop(flows)
    assert not reached(network, 1)
    with socket.create_connection((network.address(1), PORT), PATIENT) as from_outside:
        assert from_outside.recv(4) == b"here", "the clients' side is not cut"
    network.heal()
    assert reached(network)


def test_runs_of_one_machine_have_networks_of_their_own():
    """Two processes whose numbers differed by 256 once shared their addresses."""
    addresses = {Namespaces(number).address(1) for number in range(20_000, 28_000)}
    assert len(addresses) == 8_000
    assert {address.split(".")[0] for address in addresses} == {"198"}
    assert {address.split(".")[1] for address in addresses} <= {"18", "19"}


def test_nothing_is_left(network):
    network.down()
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert network.prefix(1)[-1] not in names.stdout
    network.down()


def test_a_network_that_is_there_already_is_an_error(network):
    with pytest.raises(OperatingError, match="ip link add"):
        Namespaces().up([3])
