"""Bytes through a faulty link: they pass, wait, are late, crawl, or the connection is reset."""

import contextlib
import socket
import threading
import time

import pytest

from jepsen_style_tests.proxy import ProxyLinks

SECONDS = 30
"""Longer than any pause of a busy machine; nothing waits that long when all is well."""


@pytest.fixture
def echo():
    """A server that sends back what it gets; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection):
            with connection:
                try:
                    while data := connection.recv(65536):
                        connection.sendall(data)
                except OSError:
                    pass

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def links(echo):
    links = ProxyLinks()
    links.start({(1, 2): echo, (2, 1): echo})
    yield links
    links.stop()


@pytest.fixture
def stream(links):
    with socket.create_connection(("127.0.0.1", links.ports[1, 2]), SECONDS) as connection:
        yield connection


def received(stream, count):
    """So many bytes. A connection that ends before is an error, not a loop."""
    got = b""
    while len(got) < count:
        piece = stream.recv(65536)
        assert piece, f"ended after {len(got)} bytes of {count}"
        got += piece
    return got


def test_a_perfect_link_passes_everything(stream):
    sent = bytes(range(256)) * 2000
    threading.Thread(target=stream.sendall, args=(sent,), daemon=True).start()
    assert received(stream, len(sent)) == sent


@pytest.mark.parametrize("held", [(1, 2), (2, 1)])
def test_a_held_direction_delivers_late_and_whole(links, stream, held):
    stream.sendall(b"before")
    assert stream.recv(100) == b"before"
    links.flow(*held).held = True
    stream.sendall(b"after")
    stream.settimeout(0.2)
    with pytest.raises(TimeoutError):
        stream.recv(100)
    links.heal()
    stream.settimeout(SECONDS)
    assert stream.recv(100) == b"after"


def test_other_links_are_not_held(links, stream):
    links.flow(3, 2).held = links.flow(1, 3).held = True
    stream.sendall(b"x")
    assert stream.recv(1) == b"x"


def test_a_late_link_is_at_least_so_late(links, stream):
    links.flow(1, 2).delay_seconds = 0.1
    began = time.monotonic()
    stream.sendall(b"x")
    assert stream.recv(1) == b"x"
    assert time.monotonic() - began >= 0.1


def test_a_slow_link_takes_at_least_its_time(links, stream):
    links.flow(2, 1).bytes_per_second = 10_000.0
    began = time.monotonic()
    stream.sendall(bytes(1000))
    received(stream, 1000)
    assert time.monotonic() - began >= 0.1


def test_a_reset_ends_connections_in_both_directions_of_dialling(links, stream):
    with socket.create_connection(("127.0.0.1", links.ports[2, 1]), SECONDS) as other:
        for each in (stream, other):
            each.sendall(b"x")
            assert each.recv(1) == b"x"
        links.reset([(1, 2)])
        for each in (stream, other):
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
    with socket.create_connection(("127.0.0.1", links.ports[1, 2]), SECONDS) as again:
        again.sendall(b"x")
        assert again.recv(1) == b"x"


def test_a_reset_of_other_ends_changes_nothing(links, stream):
    links.reset([(1, 3), (4, 2)])
    stream.sendall(b"x")
    assert stream.recv(1) == b"x"


def test_nobody_behind_it_is_a_closed_connection(links, echo):
    dead = ProxyLinks()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: a refused port that stays refused
        dead.start({(1, 2): taken.getsockname()[1]})
        try:
            # The reset may come before `connect` has returned: that call then reports it.
            with (
                contextlib.suppress(ConnectionResetError),
                socket.create_connection(("127.0.0.1", dead.ports[1, 2]), SECONDS) as stream,
            ):
                assert stream.recv(1) == b""
        finally:
            dead.stop()


def test_an_end_of_one_side_reaches_the_other(stream):
    stream.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionResetError):
        assert stream.recv(1) == b""
