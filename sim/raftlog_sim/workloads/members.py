"""Members of consumer groups: the product's own consumer, polled as a program polls it.

    consume     a slot begins: it subscribes to the topic, polls every few milliseconds, and leaves
                the group when the step ends; it commits now and then what it was given
    commit      a slot commits its positions
    committed   a client asks what a group has committed
    die         a slot ends without a word, as a killed process does; its session runs out
    impostor    a client speaks for others, see `impostor`

A static slot comes back under the name that it had. `group_checks` judges all requests and answers
of members. In the end all that are left must have settled, see `group_rest`.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.units import NANOS_PER_MILLI, Nanos, millis
from raftlog.client.core.group.consumer import GroupConsumer
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.group_asks import fetch_offsets
from raftlog_sim.checks.group_checks import GroupChecks
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.schedules.sizes import OFFSETS_RETENTION_MS, rebalance_ms, session_ms
from raftlog_sim.workloads.callers import CHURN, TOPIC, client_options
from raftlog_sim.workloads.group_wire import GroupWire
from raftlog_sim.workloads.impostor import Impostors
from raftlog_sim.world.driver import SimClient

if TYPE_CHECKING:
    from raftlog_sim.checks.invariants import Invariants
    from raftlog_sim.world.world import World

MEMBER: Final = 3_000_000
"""The process number of the first member."""
_POLL_WAIT_NS: Final = millis(40)
_SUSPECT_NS: Final = millis(100)
"""Members soon ask others where a silent coordinator is, and learn it before a heartbeat is
over."""
_PATIENT_NS: Final = millis(1_000)
"""A client that only asks waits for a coordinator that is silent."""
_ASK_AGAIN_NS: Final = millis(50)
_COMMIT_MS: Final = 60
_RECORDS_MAX: Final = 20
HEARTBEAT_MS: Final = 100
_INSTANCES: Final = {"dynamic": None, "static": "i{slot}", "shared": "i"}
"""Instance ids by kind. Slots with the same id fence each other."""


@final
@attrs.define(eq=False)
class SimMember:
    """One life of a slot. `over` is set once it has left or died."""

    slot: int
    process: int
    group: str
    client: SimClient
    consumer: GroupConsumer
    every_ns: int
    over: bool = False
    leaving: bool = False
    polling: bool = False
    poll: int = 0
    """How many polls there were, so that the end of a poll is not taken for that of a later one."""
    refused: int = 0
    """How often a poll raised an error."""


@final
@attrs.define(eq=False)
class Members:
    """All members of a run."""

    world: "World"
    options: SimOptions
    invariants: "Invariants"
    checks: GroupChecks = attrs.Factory(GroupChecks)
    slots: dict[int, SimMember] = attrs.Factory(dict)
    in_vain: list[str] = attrs.Factory(list)
    """Steps, as texts, that did nothing: the member was there already, or was not."""
    impostors: Impostors = attrs.field(init=False)
    groups: dict[str, None] = attrs.Factory(dict)
    """Every group that had a member."""
    _lives: int = 0
    _asks: int = 0
    _auditor: SimClient | None = None

    def __attrs_post_init__(self) -> None:
        walls = self.invariants.walls
        walls.retention_ms, walls.fleeting = OFFSETS_RETENTION_MS, CHURN
        self.checks.removals, self.checks.expired = self._removals, self._expired
        self.impostors = Impostors(self.world, self.invariants, session_ms(self.options))

    def _removals(self, group: str) -> int:
        logs = [each.groups for each in self.invariants.committed.values()]
        return sum(log.removals.get(group, 0) for log in logs if log is not None)

    def _expired(self, place: tuple[str, str, int]) -> dict[int, None]:
        logs = [each.groups for each in self.invariants.committed.values()]
        return {at: None for log in logs if log is not None for at in log.expired.get(place, ())}

    # --- steps ------------------------------------------------------------------------------------

    def perform(self, step: Step) -> None:
        """Perform one step of `OF_MEMBERS`."""
        if step.kind == "impostor":
            group = f"g{step.argument('group')}"
            self.impostors.perform(group, str(step.argument("what")))
            return
        if step.kind == "committed":
            self._ask(f"g{step.argument('group')}", _ignore)
            return
        slot = int(step.argument("member"))
        member = self.slots.get(slot)
        if (member is None or member.over) is not (
            step.kind == "consume"
        ):  # the member lives already, or there is none
            self.in_vain.append(str(step))
        elif member is None or member.over:
            self._consume(slot, step)
        elif step.kind == "commit":
            self._commit(member)
        else:
            self._die(member)

    def _consume(self, slot: int, step: Step) -> None:
        group, instance = f"g{step.argument('group')}", _INSTANCES[str(step.argument("id"))]
        self._lives += 1
        self.groups[group] = None
        client = self._client(f"member/{slot}/{self._lives}", MEMBER + self._lives)
        cooperative = step.argument("how") == "cooperative"
        settings = ConsumerOptions(
            group_id=group,
            group_instance_id=instance and instance.format(slot=slot),
            partition_assignment_strategy=("cooperative-sticky",)
            if cooperative
            else ("range", "cooperative-sticky"),
            auto_offset_reset="earliest",
            auto_commit_interval_ms=_COMMIT_MS,
            session_timeout_ms=session_ms(self.options),
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=rebalance_ms(self.options, int(step.argument("group"))),
            max_poll_records=_RECORDS_MAX,
        )
        consumer = client.open_consumer(settings)
        every_ns = millis(max(1, int(step.argument("every_ms"))))
        member = SimMember(slot, MEMBER + self._lives, group, client, consumer, every_ns)
        self.slots[slot] = member
        consumer.subscribe([TOPIC])
        client.on_turn = partial(self._look, member)
        self._poll(member)
        if step.for_ms:
            self.world.after(millis(step.for_ms), self._leave, member)

    def _client(self, name: str, process: int, suspect_ns: Nanos = _SUSPECT_NS) -> SimClient:
        options = attrs.evolve(client_options(self.world, name), suspect_ns=suspect_ns)
        client = self.world.client(name, options)
        client.listens = GroupWire(self.world, self.invariants, self.checks, process)
        return client

    # --- a program that polls ---------------------------------------------------------------------

    def _poll(self, member: SimMember) -> None:
        if member.over or member.leaving:
            return
        member.polling, member.poll = True, member.poll + 1
        member.consumer.poll_begin()
        self.world.after(_POLL_WAIT_NS, self._poll_over, member, member.poll)
        member.client.turn()
        self._look(member)

    def _poll_over(self, member: SimMember, number: int) -> None:
        if member.polling and member.poll == number:
            self._end_poll(member)

    def _end_poll(self, member: SimMember) -> None:
        member.polling = False
        if member.over or member.leaving:
            return
        member.consumer.poll_end()
        member.client.turn()
        self.world.after(member.every_ns, self._poll, member)

    def _look(self, member: SimMember) -> None:
        """Take the records that the poll under way has to give out, if any."""
        consumer = member.consumer
        if not member.polling or member.over:
            return
        told = False
        while consumer.notice is not None:
            consumer.notice_done()
            told = True
        if told:
            self.world.after(0, self._turn, member)
        try:
            taken = consumer.take(_RECORDS_MAX)
        except RaftlogError:
            member.refused += 1
            if consumer.membership.fenced:
                self._die(member)
            else:
                self.world.after(0, self._poll_over, member, member.poll)
            return
        for place, records in taken.items():
            offsets = [int(record.offset) for record in records]
            self.checks.given(member.group, place.topic, place.partition, offsets)
        if taken:
            self.world.after(0, self._poll_over, member, member.poll)

    def _turn(self, member: SimMember) -> None:
        if not member.over:
            member.client.turn()
            self._look(member)

    def _commit(self, member: SimMember) -> None:
        member.client.begin(partial(_commit_all, member.consumer), _ignore)

    # --- the end of a member ----------------------------------------------------------------------

    def _leave(self, member: SimMember) -> None:
        """End as a program ends: commit, then leave."""
        if not (member.over or member.leaving):
            member.leaving = True
            member.client.begin(
                partial(_commit_all, member.consumer), partial(self._committed_last, member)
            )

    def _committed_last(self, member: SimMember, outcome: Any) -> None:
        del outcome
        if not member.over:
            member.client.begin(member.consumer.leave, partial(self._left, member))

    def _left(self, member: SimMember, outcome: Any) -> None:
        del outcome
        self._die(member)

    def _die(self, member: SimMember) -> None:
        if not member.over:
            member.over = True
            self.world.after(0, member.client.die)

    # --- the end of a run -------------------------------------------------------------------------

    @property
    def alive(self) -> list[SimMember]:
        """Returns the members that belong to a group now."""
        return [each for each in self.slots.values() if not (each.over or each.leaving)]

    def leave_all(self) -> None:
        """Let all members leave."""
        for member in self.slots.values():
            self._leave(member)

    def all_over(self) -> bool:
        """Whether all members have left, and every impostor gave up."""
        return all(each.over for each in self.slots.values()) and not self.impostors.busy

    def audit(self) -> None:
        """Ask for all offsets of all groups; the answers are judged as those of members are."""
        for group in self.groups:
            self._asks += 1
            self._ask(group, partial(self._audited, group))

    def _ask(self, group: str, then: Callable[[Any], None]) -> None:
        if self._auditor is None:
            self._auditor = self._client("auditor", MEMBER, suspect_ns=_PATIENT_NS)
        self._auditor.call(fetch_offsets(group), then)

    def _audited(self, group: str, outcome: Any) -> None:
        """Note an answer, which `group_wire` judges; ask again after an error, as the cluster is
        whole now."""
        if isinstance(outcome, RaftlogError):
            self.world.after(_ASK_AGAIN_NS, self._ask, group, partial(self._audited, group))
        else:
            self._asks -= 1

    def audited(self) -> bool:
        """Whether all these questions are answered."""
        return self._asks == 0

    def skipped(self, acknowledged: dict[tuple[int, int], str]) -> str:
        """Returns the skipped records, see `group_checks`."""
        return self.checks.skipped(acknowledged, TOPIC)


def _commit_all(consumer: GroupConsumer, call: int) -> None:
    consumer.commit(call, None)


def _ignore(outcome: Any) -> None:
    """Ignore an outcome: the next commit repeats a failed one, and a question may be refused."""
    del outcome


def patience_ns(options: SimOptions) -> int:
    """Returns how long a group of a whole cluster may take to settle.

    A join waits for the missing members, a session runs out, and a client looks for its
    coordinator.
    """
    longest_ms = max(rebalance_ms(options, 0), rebalance_ms(options, 1))
    return millis(longest_ms + session_ms(options)) + 3_000 * NANOS_PER_MILLI
