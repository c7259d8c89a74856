"""Consumer groups: members of all kinds of clients share a topic's partitions while members and
brokers come and go.

Two workers produce. The others each keep one member of the group alive: it leaves, is killed, is
paused for longer or shorter than its session, and is replaced. Members are programs of their own
(`clients/members.py`); what they process and commit is what the judge asks about: no record below a
committed offset may be left out, no group may go back, no partition may have two owners.

After the faults two fresh members go on until everything that was acknowledged is committed.
"""

import itertools
import time
from collections.abc import Mapping
from random import Random
from typing import Any, Final, final

from jepsen_style_tests.clients.choice import GROUP_NAMES, MIXED, OWN
from jepsen_style_tests.clients.face import (
    CallRefused,
    SubjectAdmin,
    SubjectClient,
    Unknown,
    key_of,
)
from jepsen_style_tests.clients.members import COOPERATIVE, EAGER, MemberProgram
from jepsen_style_tests.recorder import Actor
from jepsen_style_tests.workloads.append import CALL_SECONDS, read_everything
from jepsen_style_tests.workloads.face import RunStage

TOPIC: Final = "shared"
GROUP: Final = "workers"
PARTITIONS: Final = 4
PRODUCERS: Final = 2
SESSION_MS: Final = 3000
POLL_INTERVAL_MS: Final = 8000
"""The rebalance timeout: as long do the others wait for a member that does not rejoin."""
SEND_EVERY_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 90.0
"""A coordinator that has just come back waits for the sessions of members that are gone."""


@final
class GroupsWorkload:
    """A `face.Workload`."""

    name: Final = "groups"
    about: Final = "members of a consumer group come and go; at least once, nothing left out"
    model: Final = "log"
    workers: Final = 6
    linearizable: Final = False
    settings: Final = {
        "group.initial.rebalance.delay.ms": "200",
        "group.min.session.timeout.ms": "3000",
        "offsets.topic.num.partitions": "2",
    }
    clients: Final = GROUP_NAMES

    def options(self) -> Mapping[str, Any]:
        return {"consumer": "subscribe", "retention": "none"}

    def prepare(self, stage: RunStage) -> None:
        stage.make_topic(TOPIC, PARTITIONS, **{"min.insync.replicas": "2"})

    def work(self, stage: RunStage, worker: int) -> None:
        if worker < PRODUCERS:
            _produce(stage, worker)
        else:
            _Place(stage, worker).run()

    def finish(self, stage: RunStage) -> None:
        _drain(stage)
        if stage.client == OWN:
            stage.client = MIXED  # for readers that are no members
        read_everything(stage, TOPIC, PARTITIONS)


def _produce(stage: RunStage, worker: int) -> None:
    """Records one by one, each to a partition that is drawn."""
    dice, actor = stage.dice(worker), stage.actor()
    chosen = MIXED if stage.client in (MIXED, OWN) else stage.client
    client = stage.open(worker, idempotent=True, retries=True, seconds=CALL_SECONDS, client=chosen)
    for number in itertools.count():
        if stage.stopping.wait(SEND_EVERY_SECONDS):
            break
        _send(stage, client, actor, dice.randrange(PARTITIONS), f"#{worker}-{number}")
    client.close()


def _send(stage: RunStage, client: SubjectClient, actor: Actor, partition: int, value: str) -> None:
    key = key_of(TOPIC, partition)
    actor.invoke("send", key, value)
    try:
        offset = client.send(TOPIC, partition, value)
    except CallRefused as error:
        actor.fail(str(error))
    except Unknown as error:
        actor.info(str(error))
    else:
        actor.ok([offset, value])
        stage.recorder.acknowledged(key, offset)


@final
class _Place:
    """One worker: a member after the other."""

    def __init__(self, stage: RunStage, worker: int) -> None:
        self.stage = stage
        self.worker = worker
        self.dice = stage.dice(worker)
        # A static member keeps its name, and what it had, when it is back within its session.
        self.instance = f"static-{worker}" if self.dice.random() < 0.3 else None
        self.lives = 0

    def run(self) -> None:
        while not self.stage.stopping.is_set():
            self.lives += 1
            name = f"worker-{self.worker}.{self.lives}"
            member = member_program(self.stage, name, self.dice, self.instance)
            try:
                self.live(member)
            finally:
                if member.running:
                    member.kill()
                if member.broken:  # what it did later is not in the history
                    self.stage.broken.append(member.broken)

    def live(self, member: MemberProgram) -> None:
        """Until it leaves, is killed, or the run is over."""
        dice, stopping = self.dice, self.stage.stopping
        while not stopping.wait(dice.uniform(1.0, 12.0)):
            if not member.running:
                break
            drawn = dice.random()
            if drawn < 0.3:
                member.pause()
                stopping.wait(dice.choice((0.5, 2.0, 2.0 * SESSION_MS / 1000)))
                member.resume()
            elif drawn < 0.5:
                member.kill()
                return
            elif drawn < 0.7:
                break
        wrong = member.leave()
        if wrong:
            self.stage.broken.append(wrong)


def member_program(
    stage: RunStage,
    name: str,
    dice: Random,
    instance: str | None = None,
) -> MemberProgram:
    """A member of the run's group, of a client that the run allows."""
    strategy, kinds = strategy_of(stage)
    settings = {
        "bootstrap": stage.bootstrap(),
        "group": GROUP,
        "topic": TOPIC,
        "strategy": strategy,
        "instance": instance,
        "session_ms": SESSION_MS,
        "poll_interval_ms": POLL_INTERVAL_MS,
        "seed": dice.randrange(1 << 30),
    }
    return MemberProgram(dice.choice(kinds), name, settings, stage.recorder)


def strategy_of(stage: RunStage) -> tuple[str, tuple[str, ...]]:
    """How the run's group shares partitions, by its seed, and the clients that know it. All members
    of a group must agree."""
    kinds = EAGER if stage.client == MIXED else (stage.client,)
    able = tuple(kind for kind in kinds if kind in COOPERATIVE)
    if able and stage.seed % 2:
        return "cooperative-sticky", able
    return "range", kinds


def _drain(stage: RunStage) -> None:
    """Fresh members read on until every acknowledged record is committed."""
    dice, ends, admin, actor = stage.dice(-1), stage.recorder.ends, stage.admin(), stage.actor()
    members = [member_program(stage, f"last-{number}", dice) for number in range(2)]
    deadline = time.monotonic() + DRAIN_SECONDS
    # The brokers are asked: a member may have been killed between its last commit and the answer.
    while behind := _behind(ends, _committed(admin, actor)):
        if time.monotonic() > deadline:
            stage.broken.append(f"the group did not commit all that was acknowledged: {behind}")
            break
        time.sleep(LOOK_SECONDS)
    for member in members:
        wrong = member.leave()
        if wrong:
            stage.broken.append(wrong)
    admin.close()


def _committed(admin: SubjectAdmin, actor: Actor) -> dict[str, int]:
    """The group's committed offsets by the coordinator's answer; empty when it does not answer."""
    keys = [key_of(TOPIC, number) for number in range(PARTITIONS)]
    actor.invoke("offset_fetch", None, [GROUP, keys])
    try:
        found = admin.committed(GROUP, TOPIC, PARTITIONS)
    except Unknown as error:
        actor.fail(str(error))
        return {}
    told = {key_of(TOPIC, number): offset for number, offset in found.items()}
    actor.ok(told)
    return {key: offset for key, offset in told.items() if offset is not None}


def _behind(ends: Mapping[str, int], committed: Mapping[str, int]) -> dict[str, list[int]]:
    """Key -> (committed, end) of what is not committed."""
    reached = {key: [committed.get(key, 0), end] for key, end in ends.items()}
    return {key: pair for key, pair in reached.items() if pair[0] < pair[1]}
