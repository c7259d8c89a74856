"""The topics that a client finds, and what they must hold after the client said that it works.

librdkafka is the witness here, through confluent-kafka: a client's "works" counts when another
client sees its effect in the cluster.
"""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from outsiders.features import (
    FILLED_PARTITIONS,
    FILLED_RECORDS,
    FIRST_TIMESTAMP,
    OWN_NAMES,
    WRITING,
    WRITTEN_RECORDS,
)
from outsiders.groups import Groups
from outsiders.outcomes import WRONG, Cell

PATIENCE_SECONDS = 20.0
POLL_SECONDS = 0.2
RETENTION_BEFORE = "3600000"
RETENTION_AFTER = "7200000"
CUT_OFFSET = 5
MOVED_FROM, MOVED_TO = 1, 2


class Topics:
    """The topics of one client, all named `prefix` and a feature."""

    def __init__(self, bootstrap, prefix, *, commits=True):
        self.prefix = prefix
        self._commits = commits
        # librdkafka's own log is off: at the end of a run it tells that the brokers stopped.
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self._settings)
        self._groups = Groups(self._settings, self.admin, prefix)

    def name(self, feature):
        return f"{self.prefix}-{feature}"

    def make(self, features):
        """Create and fill the topics of these features, and commit for the groups that they find.

        It returns when every record and offset is acknowledged.
        """
        before = {"retention.ms": RETENTION_BEFORE}
        shapes = {
            "grow": {"num_partitions": 1, "replication_factor": 3},
            "describe": {"num_partitions": 2, "replication_factor": 3},
            "delete": {"num_partitions": 1, "replication_factor": 3},
            "describe-configs": {"num_partitions": 1, "replication_factor": 3, "config": before},
            "alter-configs": {"num_partitions": 1, "replication_factor": 3, "config": before},
            "delete-records": {"num_partitions": 1, "replication_factor": 3},
            "reassign": {"num_partitions": 1, "replica_assignment": [[MOVED_FROM]]},
            **{name: {"num_partitions": 1, "replication_factor": 3} for name in WRITING},
        }
        wanted = {name: shape for name, shape in shapes.items() if name in features}
        if any(name in features for name in OWN_NAMES):
            work = {"num_partitions": 3, "replication_factor": 3, "config": before}
            wanted |= {"work": work, "other-work": work}
        # The timestamps of this topic are old: none of its records may be deleted for their age.
        wanted["filled"] = {
            "num_partitions": FILLED_PARTITIONS,
            "replication_factor": 3,
            "config": {"retention.ms": "-1"},
        }
        topics = [NewTopic(self.name(name), **shape) for name, shape in wanted.items()]
        for made in self.admin.create_topics(topics).values():
            made.result(PATIENCE_SECONDS)
        self._fill([name for name in ("filled", "delete-records", "reassign") if name in wanted])
        self._groups.make()

    def _fill(self, names):
        producer = Producer({**self._settings, "enable.idempotence": True})
        failed = []
        for name in names:
            for partition in range(FILLED_PARTITIONS if name == "filled" else 1):
                for offset in range(FILLED_RECORDS):
                    producer.produce(
                        self.name(name),
                        f"{partition}:{offset}",
                        key=f"key {offset % 3}",
                        headers={"partition": str(partition)},
                        partition=partition,
                        timestamp=FIRST_TIMESTAMP + 1000 * offset,
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                    )
        if producer.flush(PATIENCE_SECONDS) or failed:
            raise RuntimeError(f"topics of {self.prefix} cannot be filled: {failed[:1]}")

    def remove(self):
        """Delete all topics that exist, so that clients do not add up in one cluster."""
        listed = self.admin.list_topics(timeout=PATIENCE_SECONDS).topics
        ours = [name for name in listed if name.startswith(f"{self.prefix}-")]
        for gone in self.admin.delete_topics(ours).values() if ours else ():
            gone.result(PATIENCE_SECONDS)

    def denial_of(self, feature):
        """Returns a cell when the cluster does not show that feature's effect; None when it
        does."""
        if feature == "group" and not self._commits:
            return None
        if feature == "kip-848":
            return self._groups.fallback()
        if (check := self._groups.checks().get(feature)) is not None:
            return _lasting(check)
        if (seen := self._seen(feature)) is None:
            return None
        denial = _lasting(lambda: seen(self.name(feature)))
        return denial and Cell(WRONG, denial)

    def _seen(self, feature):
        if feature in WRITING:
            return self._records_denied
        return {
            "create": lambda name: self._shape_denied(name, 2) or self._retention_denied(name),
            "grow": lambda name: self._shape_denied(name, 3),
            "delete": self._absence_denied,
            "alter-configs": lambda name: self._retention_denied(name, RETENTION_AFTER),
            "delete-records": self._cut_denied,
            "reassign": self._move_denied,
        }.get(feature)

    def _described(self, name):
        return self.admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(name)

    def _shape_denied(self, name, partitions):
        found = self._described(name)
        if found is None:
            return f"there is no topic {name}"
        replicas = [len(each.replicas) for each in found.partitions.values()]
        return None if replicas == [3] * partitions else f"replicas per partition {replicas}"

    def _retention_denied(self, name, wanted=RETENTION_BEFORE):
        [answer] = self.admin.describe_configs([ConfigResource("topic", name)]).values()
        found = answer.result(PATIENCE_SECONDS)["retention.ms"].value
        return None if found == wanted else f"retention.ms is {found}, not {wanted}"

    def _absence_denied(self, name):
        return "the topic is there" if self._described(name) is not None else None

    def _move_denied(self, name):
        found = self._described(name)
        replicas = found and list(found.partitions[0].replicas)
        return None if replicas == [MOVED_TO] else f"replicas {replicas}, not [{MOVED_TO}]"

    def _cut_denied(self, name):
        consumer = Consumer({**self._settings, "group.id": self.prefix})
        low, _ = consumer.get_watermark_offsets(TopicPartition(name, 0), PATIENCE_SECONDS)
        consumer.close()
        return None if low == CUT_OFFSET else f"log start offset {low}, not {CUT_OFFSET}"

    def _records_denied(self, name):
        wanted = [f"{name.removeprefix(self.prefix + '-')}-{n}" for n in range(WRITTEN_RECORDS)]
        found = self._values(name)
        return None if found == wanted else f"{len(found)} records {found[:3]}, not {wanted[:3]}..."

    def _values(self, name):
        """Returns the values of partition 0 up to its end, without aborted and open
        transactions."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": self.prefix,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(name, 0, 0)])
        values = []
        try:
            while (message := consumer.poll(PATIENCE_SECONDS)) is not None:
                if message.error() is None:
                    values.append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return values
                else:
                    raise KafkaException(message.error())
        finally:
            consumer.close()
        raise RuntimeError(f"{name} has no end within {PATIENCE_SECONDS:.0f} s")


def _lasting(check):
    """Returns the denial of an effect that lasts as long as one waits; None when the effect
    comes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    # acks=0, a move of replicas and a commit in the background end later than the client's call.
    while (denial := check()) is not None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return denial
