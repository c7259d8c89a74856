"""Topic administration: topics are created, grown and deleted by many, and each name is judged as
an object with its own history.

Each answer must fit one order of all operations on that name (`raftlog.verify.judging.models`,
`TOPIC`). At the end every broker must list the topics that this order leaves.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, final

from jepsen_style_tests.clients.choice import NAMES as CLIENT_NAMES
from jepsen_style_tests.clients.face import (
    CallRefused,
    NoTopic,
    SubjectAdmin,
    TooFew,
    TopicExists,
    Unknown,
)
from jepsen_style_tests.recorder import Actor
from jepsen_style_tests.workloads.face import SETTLE_SECONDS, RunStage
from raftlog.verify.judging.models import TOPIC, TOPIC_EXISTS, TOPIC_MISSING, TOPIC_TOO_FEW

NAMES: Final = 4
OPERATIONS_PER_NAME: Final = 25
PARTITIONS_MAX: Final = 4


@final
class TopicsWorkload:
    """A `face.Workload`."""

    name: Final = "topics"
    about: Final = "topics created, grown, deleted; each name judged as one object"
    model: Final = TOPIC.name
    workers: Final = 4
    linearizable: Final = False
    settings: Final[dict[str, str]] = {}
    clients: Final = CLIENT_NAMES

    def options(self) -> Mapping[str, Any]:
        return {}

    def prepare(self, stage: RunStage) -> None:
        """Nothing: topics are what is tested."""

    def work(self, stage: RunStage, worker: int) -> None:
        _Administrator(stage, worker).run()

    def finish(self, stage: RunStage) -> None:
        """The listed topics, once they no longer change, must be those that the history leaves."""
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


def _look(admin: SubjectAdmin, actor: Actor, name: str) -> None:
    actor.invoke("look", name)
    try:
        found = admin.topics()
    except (CallRefused, Unknown) as error:
        actor.fail(str(error))
    else:
        actor.ok(found.get(name, 0))


@final
class _Administrator:
    """One worker."""

    def __init__(self, stage: RunStage, worker: int) -> None:
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
            self.actor.ok(TOPIC_EXISTS)
        except NoTopic:
            self.actor.ok(TOPIC_MISSING)
        except TooFew:
            self.actor.ok(TOPIC_TOO_FEW)
        except CallRefused as error:
            self.actor.fail(str(error))
        except Unknown as error:
            self.actor.info(str(error))
        else:
            self.actor.ok("done")
