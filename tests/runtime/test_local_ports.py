"""Which ports are free, and whose the others are; and whose health an answer tells."""

import http.server
import os
import socket
import sys
import threading
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest

from raftlog.base.errors import OperatingError
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local import ports as local_ports
from raftlog.runtime.local.health import health_of
from raftlog.runtime.local.ports import (
    HOST,
    PORTS_FROM,
    HeldPorts,
    Holder,
    free_ports,
    holder_of,
    is_free,
    kept_or_free,
    refuse_taken,
)
from raftlog.runtime.local.state import STATE_FILE
from raftlog.runtime.real_ports import OsEntropy


def listening(stack: ExitStack) -> int:
    held = stack.enter_context(socket.socket())
    held.bind((HOST, 0))
    held.listen()
    return int(held.getsockname()[1])


def test_a_port_on_which_somebody_listens_is_not_free():
    with ExitStack() as stack:
        port = listening(stack)
        assert not is_free(port)
        fresh, free = free_ports(2)
        kept = kept_or_free([port, free, None])
        assert kept[1] == free
        assert port not in kept
        assert len(set(kept)) == 3
    assert is_free(port)
    assert is_free(fresh)


def test_a_port_is_free_again_while_the_kernel_still_remembers_connections():
    """A broker's old ports were never free in the minute after it had closed its connections."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do
        server.bind((HOST, 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)):
            accepted, _ = server.accept()
            accepted.close()  # the closing side keeps the connection in TIME_WAIT
    assert is_free(port)


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whose a port is")


@ON_LINUX
def test_a_held_port_is_given_to_nobody_and_its_broker_can_listen(monkeypatch):
    """A test's producer had made its topic in the cluster of another test, which had been given the
    port of the producer's dead broker."""
    held, free = free_ports(2)
    monkeypatch.setattr(local_ports, "_first_outgoing_port", lambda: 65_536)
    drawn = cycle([held - PORTS_FROM, free - PORTS_FROM])
    monkeypatch.setattr(OsEntropy, "below", lambda *_: next(drawn))
    assert set(free_ports(2)) == {held, free}
    ports = HeldPorts()
    ports.hold([held, held])
    try:
        assert free_ports(1) == [free]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, held))
        assert is_free(held), "our broker may listen there"
        with socket.create_server((HOST, held)), socket.create_connection((HOST, held)):
            ports.hold([held])
    finally:
        ports.release()
    assert is_free(held)


@ON_LINUX
def test_a_port_where_somebody_listens_cannot_be_held():
    with ExitStack() as stack:
        port = listening(stack)
        ports = HeldPorts()
        ports.hold([port])
    assert free_ports(1, besides=[port])
    with socket.socket() as bound:
        bound.bind((HOST, port))  # nobody holds it
    ports.release()


@ON_LINUX
def test_no_connection_is_given_a_port_that_a_broker_may_want_back():
    """A connection was given the port of a broker that was dead for a while, as its own; it was
    then up to that connection when the broker could come back."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if low < PORTS_FROM + 1_000:
        pytest.skip("this machine leaves no room below its own ports")
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(PORTS_FROM <= port < low for port in found)
    assert not set(free_ports(50, besides=found)) & set(found)


@ON_LINUX
@pytest.mark.parametrize("ended", [False, True])
def test_a_connection_whose_own_port_it_is_is_told_of(ended):
    with ExitStack() as stack:
        port = listening(stack)
        with socket.create_connection((HOST, port)) as connection:
            own = connection.getsockname()[1]
            assert not is_free(own)
            if not ended:
                with pytest.raises(OperatingError, match=f"taken by process {os.getpid()}"):
                    refuse_taken([own], for_whom="broker 7")
        if ended:
            with pytest.raises(OperatingError, match="a connection that ended a moment ago"):
                refuse_taken([own], for_whom="broker 7")


@ON_LINUX
def test_who_listens_is_told():
    with ExitStack() as stack:
        port = listening(stack)
        holder = holder_of(port)
        assert holder is not None
        assert holder.process == os.getpid()
        with pytest.raises(
            OperatingError, match=f"broker 7 cannot listen.*process {os.getpid()}"
        ) as told:
            refuse_taken([free_ports(1)[0], port], for_whom="broker 7")
        assert told.value.on == f"{HOST}:{port}"
    assert holder_of(port) is None
    refuse_taken([port], for_whom="broker 7")


def test_a_broker_is_known_by_its_command(tmp_path: Path, monkeypatch):
    """One that was started by hand was said to end by `raftlog down`, which knows nothing of it."""
    command = ("python", "-m", "raftlog", "serve", "--config")
    broker = Holder(12, (*command, str(tmp_path / "broker1.properties")))
    assert broker.directory is None
    assert str(broker) == f"process 12: {' '.join(broker.command)}"[: len(str(broker))]
    (tmp_path / STATE_FILE).write_text("{}")
    assert str(broker) == f"process 12, a broker of the cluster in {tmp_path}"
    monkeypatch.chdir(tmp_path)
    assert Holder(12, (*command, "broker1.properties")).directory is None
    other = Holder(13, ("nginx", "-g\x1b[31m", "x" * 200))
    assert other.directory is None
    assert "\x1b" not in str(other)
    assert len(str(other)) < 100
    assert Holder(14, ("serve", "--config")).directory is None


class Answers(http.server.BaseHTTPRequestHandler):
    headers_sent: tuple[tuple[str, str], ...] = ()
    status = 200

    def do_GET(self):
        self.send_response(self.status)
        for name, value in self.headers_sent:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"[+]livez ok\n[-]registered not yet\n" if self.status == 503 else b"ok\n")

    def log_message(self, *_):
        pass


def told(running, of_process, status=200, **sent):
    """Returns what is believed of an answer with these headers at broker 1's admin port."""

    class One(Answers):
        headers_sent = tuple((f"Raftlog-{name.title()}", value) for name, value in sent.items())

    One.status = status
    with http.server.HTTPServer((HOST, running.place(1).admin_port), One) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            return running.lacking(1, of_process)
        finally:
            thread.join()


def test_readiness_is_believed_of_the_own_cluster_node_and_process_only(tmp_path: Path):
    """`raftlog up` said that it was up while its brokers were dead: another cluster's broker had
    answered at their ports."""
    cluster = local_cluster.found(tmp_path, brokers=1)
    own = {"cluster": cluster.cluster_id, "node": "1", "process": "77"}
    assert told(cluster, 77, **own) is None
    assert told(cluster, None, **own) is None
    assert told(cluster, 77, 503, **own) == "registered: not yet"
    silence = "it does not listen yet"
    assert told(cluster, 77) == silence
    assert told(cluster, 78, **own) == silence
    assert told(cluster, 77, **{**own, "cluster": "00" * 16}) == silence
    assert told(cluster, 77, **{**own, "node": "2"}) == silence
    assert cluster.lacking(1, 77) == silence
    assert health_of(cluster.place(1).admin_port) is None


def test_a_descriptor_that_closes_meanwhile_hides_no_holder(tmp_path, monkeypatch):
    """One that was gone when it was read let the whole process be passed over, the holder too."""
    files = tmp_path / "42" / "fd"
    files.mkdir(parents=True)
    (tmp_path / "42" / "cmdline").write_bytes(b"python\0serving\0")
    for number in range(8):
        (files / str(number)).touch()  # no link: reading it fails, as of one that was closed
    (files / "8").symlink_to("socket:[77]")
    (tmp_path / "net").mkdir()
    port = 25849
    row = f"0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 77 1"
    (tmp_path / "net" / "tcp").write_text(f"head\n{row}\n")
    monkeypatch.setattr(local_ports, "_PROC", tmp_path)
    holder = local_ports.holder_of(port)
    assert holder is not None
    assert (holder.process, holder.command) == (42, ("python", "serving"))
