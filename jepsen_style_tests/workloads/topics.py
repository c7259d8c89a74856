"""Topic administration: topics are created, grown and deleted by many, and each name is judged as
an object with its own history.

A topic is there with so many partitions, or it is not. What an answer says must fit one order of
all operations on that name; what every broker lists at the end must be what that order leaves.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from jepsen_style_tests.clients.face import Admin, NoTopic, Refused, TooFew, TopicExists, Unknown
from jepsen_style_tests.recorder import Actor
from jepsen_style_tests.workloads.face import SETTLE_SECONDS, Stage
from raftlog.verify import Call, Interval, Model

NAMES: Final = 4
OPERATIONS_PER_NAME: Final = 25
PARTITIONS_MAX: Final = 4
EXISTS, MISSING, TOO_FEW = "exists", "missing", "too few"


class Topic(NamedTuple):
    """A name: how many partitions, 0 without the topic; when the last deletion of it returned."""

    partitions: int = 0
    deleted_ns: int = -1


class Asked(NamedTuple):
    """An operation with its interval, which tells whether two deletions were concurrent."""

    f: str
    partitions: int | None
    start_ns: int
    end_ns: int


def _call(op: Interval) -> Call | None:
    if op.type == "fail" or (op.f == "look" and op.type != "ok"):
        return None
    answer = op.value if op.type == "ok" else None
    asked = Asked(op.f, op.asked, op.start_ns, op.end_ns)
    return Call(op.start_ns, op.end_ns, asked, answer, op)


def _step(topic: Topic, asked: Asked, answer: Any) -> tuple[bool, Topic]:
    if asked.f == "look":
        return answer == topic.partitions, topic
    after, refusal = _effect(topic, asked)
    if answer is None:  # nobody heard: whatever it did there
        return True, after
    if answer == "done":
        # Of two deletions at once both may say so: what both were to delete is gone.
        together = asked.f == "delete" and topic.deleted_ns >= asked.start_ns
        return refusal is None or together, after
    return answer == refusal, after


def _effect(topic: Topic, asked: Asked) -> tuple[Topic, str | None]:
    """(the topic afterwards, why it was refused or None)."""
    count = asked.partitions or 0
    if asked.f == "create":
        return (topic, EXISTS) if topic.partitions else (topic._replace(partitions=count), None)
    if not topic.partitions:
        return topic, MISSING
    if asked.f == "delete":
        return Topic(0, asked.end_ns), None
    return (
        (topic._replace(partitions=count), None) if count > topic.partitions else (topic, TOO_FEW)
    )


TOPIC_MODEL: Final = Model(
    name="topic",
    init=Topic,
    step=_step,
    call_of=_call,
    functions=("create", "delete", "grow", "look"),
)


@final
class TopicsWorkload:
    """A `face.Workload`."""

    name: Final = "topics"
    about: Final = "topics created, grown, deleted; each name judged as one object"
    model: Final = TOPIC_MODEL
    workers: Final = 4
    linearizable: Final = False

    def options(self) -> Mapping[str, Any]:
        return {}

    def prepare(self, stage: Stage) -> None:
        """Nothing: topics are what is tested."""

    def work(self, stage: Stage, worker: int) -> None:
        _Administrator(stage, worker).run()

    def finish(self, stage: Stage) -> None:
        """What is listed, once it no longer changes, must be what the history leaves."""
        admin, actor = stage.admin(), stage.actor()
        deadline = time.monotonic() + SETTLE_SECONDS
        before: dict[str, int] | None = None
        while time.monotonic() < deadline:
            try:
                now = admin.topics()
            except Unknown:
                now = None
            if now is not None and now == before:
                break
            before = now
            time.sleep(1.0)
        else:
            stage.broken.append("the list of topics does not settle")
        for name in sorted(stage.names):
            _look(admin, actor, name)
        admin.close()


def _look(admin: Admin, actor: Actor, name: str) -> None:
    actor.invoke("look", name)
    try:
        found = admin.topics()
    except (Refused, Unknown) as error:
        actor.fail(str(error))
    else:
        actor.ok(found.get(name, 0))


@final
class _Administrator:
    """One worker."""

    def __init__(self, stage: Stage, worker: int) -> None:
        self.stage = stage
        self.dice = stage.dice(worker)
        self.actor = stage.actor()
        self.admin = stage.admin()

    def run(self) -> None:
        while not self.stage.stopping.is_set():
            age = self.stage.recorder.operations // (NAMES * OPERATIONS_PER_NAME)
            name = f"t{age}-{self.dice.randrange(NAMES)}"
            self.stage.names.add(name)
            f = self.dice.choices(("create", "delete", "grow"), (5, 3, 3))[0]
            count = self.dice.randint(1, PARTITIONS_MAX) if f != "delete" else None
            self.ask(f, name, count)
            self.stage.stopping.wait(self.dice.random() * 0.1)
        self.admin.close()

    def ask(self, f: str, name: str, count: int | None) -> None:
        """One operation; a refusal is an answer, and says something about the topic."""
        self.actor.invoke(f, name, count)
        try:
            if f == "create":
                self.admin.create(name, count or 1, {})
            elif f == "delete":
                self.admin.delete(name)
            else:
                self.admin.grow(name, count or 1)
        except TopicExists:
            self.actor.ok(EXISTS)
        except NoTopic:
            self.actor.ok(MISSING)
        except TooFew:
            self.actor.ok(TOO_FEW)
        except Refused as error:
            self.actor.fail(str(error))
        except Unknown as error:
            self.actor.info(str(error))
        else:
            self.actor.ok("done")
