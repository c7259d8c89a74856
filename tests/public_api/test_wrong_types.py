"""Wrong arguments, thrown at every public function.

The story: `client.produce("t", "text")` raised nothing. The record went into a batch, the batch was
encoded in a turn of the client, and the TypeError of the encoder ended the client for all callers
that used it. A value of a wrong type must be refused where it comes in, by the name of its
argument.

Three tests hold that: every public function checks (`test_every_public_function_checks`); a value
that is wrong for everything is refused by name (`test_a_wrong_type_is_named`); and whatever
hypothesis throws, no other kind of error comes out, and the shared client lives and produces.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

import raftlog
from raftlog import verify
from raftlog.base.errors import RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core import asks
from raftlog.client.core.calls import KnowTopic, Produce
from raftlog.client.core.values import ClientOptions, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.embed.async_face import AsyncFace
from raftlog.embed.cluster import Cluster
from raftlog.embed.faults import ApiFaults
from raftlog.embed.replicated_log import AsyncReplicatedLog, ReplicatedLog
from raftlog.verify import HistoryWriter
from tests.public_api.calls import (
    ASKED,
    ASKED_OWN,
    CLIENT_CALLS,
    CLIENT_OWN,
    CLUSTER_CALLS,
    CLUSTER_OWN,
    LOG_CALLS,
    OPTIONS,
    OTHERS,
    PLACE,
    REQUEST_VERB_CALLS,
    VERB_CALLS,
    VERIFY_CALLS,
    VERIFY_OWN,
    VERIFY_RESULTS,
    WRONG,
    Target,
    blocking_target,
    produces,
    refused_by_name,
)

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# --- every public function checks -----------------------------------------------------------------


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (Client, CLIENT_OWN | set(CLIENT_CALLS)),
        (BlockingClient, {"failure"} | set(CLIENT_CALLS)),
        (Cluster, CLUSTER_OWN - {"aio"} | set(CLUSTER_CALLS) | set(VERB_CALLS)),
        (ApiFaults, set(REQUEST_VERB_CALLS)),
        (AsyncFace, {"start_all", *CLUSTER_CALLS}),
        (ReplicatedLog, {"aio", "cluster", "close"} | set(LOG_CALLS)),
        (AsyncReplicatedLog, {"cluster", "close"} | set(LOG_CALLS)),
        (HistoryWriter, {"flush", "close", "header", "invoke", "complete", "nemesis"}),
    ],
)
def test_every_public_method_is_thrown_at(kind: type, called: set[str]):
    """A new method does not pass by these tests."""
    assert public_names(kind) - called == set()


def test_every_public_function_is_thrown_at():
    for module, asked in ASKED.items():
        made = {
            name
            for name, each in vars(module).items()
            if inspect.isfunction(each) and each.__module__ == module.__name__ and name[0] != "_"
        }
        assert made - ASKED_OWN == set(asked), module
    assert set(verify.__all__) - set(VERIFY_CALLS) == VERIFY_OWN | VERIFY_RESULTS
    assert set(raftlog.__all__) <= set(OTHERS)


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, right in CLIENT_CALLS.items() if right])
def test_a_wrong_type_is_named_by_the_blocking_client(client: BlockingClient, name: str):
    target = blocking_target(client, name)
    for argument in target.right:
        refused_by_name(target, argument)
    target.lives()


async def _awaited(call: Callable[[], Any]) -> None:
    done = call()
    if inspect.isawaitable(done):
        await done


def test_a_wrong_type_is_named_by_the_trio_client(cluster: Cluster):
    async def main() -> None:
        async with Client(cluster.bootstrap_servers, **OPTIONS) as opened:
            for name, both in CLIENT_CALLS.items():
                # The blocking client's timeout: trio has its own, `move_on_after`.
                right = {each: value for each, value in both.items() if each != "timeout"}
                for argument in right:
                    call = partial(getattr(opened, name), **{**right, argument: WRONG})
                    with pytest.raises((TypeError, ValueError)) as caught:
                        await _awaited(call)
                    assert argument in str(caught.value), (name, caught.value)
            with pytest.raises(TypeError, match=r"^sent must be SentRecord"):
                await opened.wait(WRONG)
            assert (await opened.produce("t", b"after")).offset >= 0

    trio.run(main)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, asked in ASKED.items() for name in asked]
)
def test_a_wrong_type_is_named_by_what_is_asked(module: Any, name: str):
    target = Target(name, getattr(module, name), ASKED[module][name], bool)
    for argument in target.right:
        refused_by_name(target, argument)
    assert target.call(**target.right) is not None


@pytest.mark.parametrize("name", [*CLUSTER_CALLS, *VERB_CALLS])
def test_a_wrong_type_is_named_by_the_cluster(cluster: Cluster, name: str):
    right = {**CLUSTER_CALLS, **VERB_CALLS}[name]
    target = Target(name, getattr(cluster, name), right, bool)
    for argument in target.right:
        refused_by_name(target, argument)
    if "node" in target.right:
        refused_by_name(target, "node", 7)
    assert cluster.alive == [1]


@pytest.mark.parametrize("name", REQUEST_VERB_CALLS)
def test_a_wrong_type_is_named_by_the_faults_of_an_api(cluster: Cluster, name: str):
    target = Target(name, getattr(cluster.on("Produce"), name), REQUEST_VERB_CALLS[name], bool)
    for argument in target.right:
        refused_by_name(target, argument)


@pytest.mark.parametrize("name", LOG_CALLS)
def test_a_wrong_type_is_named_by_the_replicated_log(log: ReplicatedLog, name: str):
    target = Target(name, getattr(log, name), LOG_CALLS[name], bool)
    for argument in target.right:
        refused_by_name(target, argument)
    assert log.append(b"after") >= 0


FREE_ARGUMENTS = {("invoke", "value"), ("complete", "value"), ("nemesis", "value")}
"""Any JSON; what is none is refused as well, by the same name."""


@pytest.mark.parametrize("name", [*VERIFY_CALLS, *OTHERS])
def test_a_wrong_type_is_named_by_the_rest(name: str):
    call, right = VERIFY_CALLS[name] if name in VERIFY_CALLS else OTHERS[name]
    target = Target(name, call, right, bool)
    for argument in target.right:
        refused_by_name(target, argument)


TOPIC_RULES = [
    ("", "empty"),
    ("..", r"'\.\.'"),
    ("a" * 250, "at most 249"),
    ("no spaces", "letters and digits"),
    ("caf\u00e9", "letters and digits"),
]


@pytest.mark.parametrize(("bad", "rule"), TOPIC_RULES)
def test_a_bad_topic_name_fails_at_once_with_the_rule(
    client: BlockingClient, log: ReplicatedLog, bad: str, rule: str
):
    place = TopicPartition(bad, 0)
    for call in (
        lambda: client.produce(bad, b"v"),
        lambda: client.send_soon(bad, b"v"),
        lambda: client.create_topic(bad),
        lambda: client.delete_topic(bad),
        lambda: client.create_partitions(bad, 2),
        lambda: client.describe(bad),
        lambda: client.offsets(bad, -1),
        lambda: client.offset(place, -1),
        lambda: client.assign({place: 0}),
        lambda: client.seek(place, 0),
        lambda: client.ask(KnowTopic(bad)),
        lambda: client.ask(Produce(bad, b"v")),
        lambda: ReplicatedLog(cluster=log.cluster, name=bad),
        lambda: log.cluster.leader_of(bad),
    ):
        with pytest.raises(ValueError, match=f"no topic's name: .*{rule}"):
            call()
    produces(client)


# --- other ways to end a client -------------------------------------------------------------------


def test_a_then_that_raises_ends_no_client(client: BlockingClient):
    def then(told: object) -> None:
        raise KeyError(f"of {told}")

    client.send_soon("t", b"v", then=then)
    with pytest.raises(KeyError):
        client.flush()
    client.flush()
    produces(client)


def test_a_refused_record_takes_no_other_along(client: BlockingClient):
    """`send_soon` collects; what was collected behind a record of an unknown topic was lost, and
    the error met the caller that happened to hand the records over."""
    told: list[Any] = []
    client.send_soon("nowhere", b"v", then=told.append)
    client.send_soon("nowhere", b"v")
    client.send_soon("t", b"v", then=told.append)
    produces(client)
    with pytest.raises(RaftlogError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.flush()
    refused, sent = told
    assert isinstance(refused, RaftlogError)
    assert sent.topic == "t"


def test_functions_of_a_callers_own_end_their_call_only(client: BlockingClient):
    question = asks.list_offsets(PLACE, -1)
    for wrong, error in (
        (question._replace(read=lambda: None), r"request\.read"),
        (question._replace(make=lambda: None), r"request\.make"),
        (question._replace(make=lambda epoch, topic_id: "no body"), "a str is not a"),
        (asks.metadata()._replace(body="no body"), "a str is not a"),
        (asks.metadata()._replace(api_key=999), "does not serve"),
    ):
        with pytest.raises(RaftlogError, match=error):
            client.ask(wrong)
        produces(client)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "nul\x00.org"])
def test_a_name_that_no_host_can_have_ends_no_client(cluster: Cluster, host: str):
    """Brokers may advertise such a name as well: that is an address where no broker listens."""
    addresses = ((host, 9092), *_addresses(cluster))
    with BlockingClient(options=ClientOptions(bootstrap=addresses)) as opened:
        for _ in range(3):
            assert len(opened.ask(asks.metadata()).brokers) == len(cluster.nodes)
    with pytest.raises(ValueError, match="bootstrap"):
        BlockingClient(f"{host}:9092")


def _addresses(cluster: Cluster) -> list[tuple[str, int]]:
    return [cluster.address_of(node) for node in cluster.nodes]
