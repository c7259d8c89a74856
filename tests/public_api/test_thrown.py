"""Whatever hypothesis throws, no other kind of error comes out, and the shared client lives."""

import io
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from raftlog.base.errors import RaftlogError, WrongValue
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.calls import KnowTopic, Produce
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import Cluster
from raftlog.embed.replicated_log import ReplicatedLog
from tests.public_api.calls import (
    ASKED,
    CLIENT_CALLS,
    CLUSTER_CALLS,
    LOG_CALLS,
    OTHERS,
    PLACE,
    REQUEST_VERB_CALLS,
    VERB_CALLS,
    VERIFY_CALLS,
    Target,
    blocking_target,
    produces,
)

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# --- whatever hypothesis throws -------------------------------------------------------------------

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**40, 2**63 - 1, 2**63, -(2**70), 2**70]),
    st.sampled_from([0.0, -0.5, float("nan"), float("-inf"), 1j]),
    st.sampled_from(["", "t", "nowhere", "a b", "\ud800", "\x00", "caf\u00e9", "0", "log"]),
    st.sampled_from([b"", b"t", bytearray(b"x"), memoryview(b"y"), memoryview(bytes(9))[::3]]),
    st.builds(object),
    st.just(len),
    st.just(PLACE),
    st.sampled_from([TopicPartition("t", -1), TopicPartition("t", "0"), TopicPartition(None, 0)]),
    st.sampled_from([KnowTopic("t", "0"), Produce("t", "text"), Produce(b"t", b"v")]),
    st.sampled_from([int, RaftlogError("x"), ..., range(3), {1, 2}, io.StringIO("x")]),
)
THINGS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(
            st.one_of(st.sampled_from(["t", "a", 1, None, b"k", PLACE, ("t", 0)])),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=6,
)
THROWN = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


ALSO = {"source": "line"}
"""The reader reports an error inside a history as a line of it."""


def outcome(target: Target, changed: Mapping[str, Any]) -> Exception | None:
    try:
        done = target.call(**{**target.right, **changed})
        if isinstance(done, Iterator):
            list(done)
    except (TypeError, ValueError, RaftlogError) as error:
        return error
    return None


def throw(target: Target, data: st.DataObject) -> None:
    """One or two arguments are replaced. The call may well work, or be refused by the cluster; no
    error of another kind may come out, and `target.lives` must hold afterwards."""
    names = data.draw(
        st.lists(st.sampled_from(sorted(target.right)), min_size=1, max_size=2, unique=True)
    )
    changed = {name: data.draw(THINGS, label=name) for name in names}
    seconds = changed.get("seconds", 0)
    assume(not (seconds is None or (isinstance(seconds, int | float) and seconds > 0)))  # it waits
    error = outcome(target, changed)
    if isinstance(error, TypeError | ValueError):
        # Python's own words for an argument that a function of ours let through would not say
        # which argument it was.
        assert isinstance(error, RaftlogError), (target.name, changed, repr(error))
        said = [ALSO.get(name, name) for name in names] + names
        assert any(name in str(error) for name in said), (target.name, changed, error)
    target.lives()


@pytest.mark.parametrize("name", [name for name, right in CLIENT_CALLS.items() if right])
@THROWN
@given(data=st.data())
def test_the_shared_client_lives(client: BlockingClient, name: str, data: st.DataObject):
    throw(blocking_target(client, name), data)


THROWN_AT_BROKERS = {
    *("metadata", "describe_configs", "list_offsets", "create_topics", "create_partitions"),
    *("describe_settings", "list_resources", "describe_quorum"),
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, asked in ASKED.items() for name in asked]
)
@THROWN
@given(data=st.data())
def test_questions_do_not_end_the_client(
    client: BlockingClient, module: Any, name: str, data: st.DataObject
):
    """Questions that their own door lets through are also asked."""
    make = getattr(module, name)

    def call(**arguments: Any) -> None:
        made = make(**arguments)
        if name in THROWN_AT_BROKERS:
            client.ask(made)

    throw(Target(name, call, ASKED[module][name], partial(produces, client)), data)


@pytest.mark.parametrize("name", CLUSTER_CALLS)
@THROWN
@given(data=st.data())
def test_the_cluster_lives(
    cluster: Cluster, client: BlockingClient, name: str, data: st.DataObject
):
    method = getattr(cluster, name)

    def call(**arguments: Any) -> Any:
        node = arguments.get("node")
        if type(node) is int and node in cluster.nodes:
            return None  # a right one: the broker would be killed
        return method(**arguments)

    throw(Target(name, call, CLUSTER_CALLS[name], partial(produces, client)), data)
    assert cluster.alive == [1]


@pytest.mark.parametrize("name", [*VERB_CALLS, *(f"on.{each}" for each in REQUEST_VERB_CALLS)])
@THROWN
@given(data=st.data())
def test_fault_verbs_leave_the_cluster_alive(
    cluster: Cluster, client: BlockingClient, name: str, data: st.DataObject
):
    _, on, verb = name.rpartition("on.")
    method = getattr(cluster.on("ListGroups") if on else cluster, verb or name)

    def call(**arguments: Any) -> None:
        if arguments.get("node") == 1:  # a right one: its disk would fail for good
            return
        try:
            method(**arguments)
        except WrongValue as error:
            # The right call names a broker that is not there, so that it does nothing.
            if arguments.get("node") != 7 or "node must be one of" not in str(error):
                raise

    def lives() -> None:
        cluster.heal()
        produces(client)

    right = REQUEST_VERB_CALLS[verb] if on else VERB_CALLS[name]
    throw(Target(name, call, right, lives), data)


@pytest.mark.parametrize("name", LOG_CALLS)
@THROWN
@given(data=st.data())
def test_the_replicated_log_lives(log: ReplicatedLog, name: str, data: st.DataObject):
    throw(Target(name, getattr(log, name), LOG_CALLS[name], lambda: log.append(b"after")), data)


@pytest.mark.parametrize("name", [*VERIFY_CALLS, *OTHERS])
@THROWN
@given(data=st.data())
def test_the_rest_refuses_by_name(name: str, data: st.DataObject):
    call, right = VERIFY_CALLS[name] if name in VERIFY_CALLS else OTHERS[name]
    throw(Target(name, call, right, bool), data)
