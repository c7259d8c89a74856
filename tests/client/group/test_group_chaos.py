"""Groups under everything at once."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftlog.base.units import millis
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.group.membership import Phase
from raftlog.kafka.versions import ApiKey
from tests.client.group.world import start


def expire_unknown(world, readers):
    """A member of which the coordinator knows and no client does: its session ends."""
    known = {each.consumer.membership.identity.member_id for each in readers}
    for name in list(world.groups.groups["g"].members):
        if name not in known:
            world.groups.expire("g", name)


def hold_or_let_go(cluster, api):
    if api in cluster.holding:
        cluster.let_go(api)
    else:
        cluster.holding.add(api)


@settings(max_examples=15, deadline=None)
@given(
    strategy=st.sampled_from(["range", "sticky", "cooperative-sticky"]),
    static=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["join", "die", "work", "move", "silence", "refuse", "hold", "grow", "run"]
            ),
            st.integers(0, 600),
        ),
        max_size=10,
    ),
)
@example("range", False, [("hold", 81), ("join", 61), ("join", 45)])  # a late answer began a fetch
def test_whatever_happens_each_record_is_read_and_none_is_skipped(strategy, static, steps):
    """Members come and die (a static one comes back at once), work and poll, coordinators move,
    fall silent and refuse, and answers about offsets come late. Afterwards the members that are
    left have each partition once, and every record was given out by a poll."""
    world = start(4, 4)
    world.latency_ns = millis(10)  # each fetch is answered at once: the fewer, the faster
    more = {"partition_assignment_strategy": (strategy,), "auto_commit_interval_ms": 50}
    readers, records = [], []

    def begin(instance):
        named = {"group_instance_id": instance} if static else {}
        readers.append(world.reader("t", records_max=3, **more, **named))

    begin("0")
    refusals = [14, 15, 16, 22, 25, 27]
    apis = [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT]
    for what, number in steps:
        if what == "join" and len(readers) < 4:
            begin(str(len(readers)))
        elif what == "die" and len(readers) > 1:
            dead = readers.pop(number % len(readers))
            world.kill(dead)
            records += dead.records
            if static:
                begin(dead.consumer.settings.group_instance_id)
            else:
                world.groups.expire("g", dead.consumer.membership.identity.member_id)
        elif what == "work":
            each = readers[number % len(readers)]
            (each.end_work if each.busy else each.begin_work)()
        elif what == "move":
            world.groups.silent.clear()
            world.groups.move_to(1 + number % 3)
        elif what == "silence":
            world.groups.silent.add(world.groups.node)
            world.run_for(millis(number))
            world.groups.move_to(1 + world.groups.node % 3)
        elif what == "refuse":
            world.cluster.refuse(apis[number % 4], refusals[number % 6])
        elif what == "hold":
            hold_or_let_go(world.cluster, (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH)[number % 2])
        elif what == "grow" and len(world.cluster.topics["t"]) < 6:
            world.cluster.grow("t")
        world.run_for(millis(number))
    for each in readers:
        each.end_work()
    world.groups.silent.clear()
    world.cluster.let_go(*world.cluster.holding)
    expire_unknown(world, readers)
    wanted = [f"t-{at}" for at in range(4)]

    def settled():
        owned = sorted(each for reader in readers for each in reader.places())
        return [each for each in owned if each in wanted] == wanted and all(
            each.consumer.membership.phase is Phase.STABLE for each in readers
        )

    world.run_for(millis(3_000))
    expire_unknown(world, readers)
    world.run_until(settled, steps=100_000)
    world.run_until(
        lambda: (
            len(
                {(r.partition, r.offset) for r in records + [r for e in readers for r in e.records]}
            )
            == 48
        )
    )
    for each in readers:
        assert not [error for error in each.errors if not isinstance(error, KafkaError)]
