"""The groups that a client finds, and what they must hold after the client said that it works.

As in `topics`, librdkafka is the witness. A client that lists or reads groups finds one here that
has committed; what a client itself commits is read back.
"""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka import ConsumerGroupType as GroupType

from outsiders.features import COMMITTED_OFFSET, FILLED_PARTITIONS, FILLED_RECORDS, KNOWN_OFFSET
from outsiders.outcomes import FALLS_BACK, WRONG, Cell

PATIENCE_SECONDS = 20.0
CLASSIC_INSTEAD = "it reads by the classic protocol instead, as with a Kafka of classic groups only"


class Groups:
    """The groups of one client, all named `prefix` and their purpose."""

    def __init__(self, settings, admin, prefix):
        self._settings = settings
        self._admin = admin
        self._prefix = prefix
        self._filled = f"{prefix}-filled"

    def make(self):
        """Commit for two groups without members: one to be read, one to be deleted."""
        for name in ("known", "doomed"):
            consumer = Consumer({**self._settings, "group.id": f"{self._prefix}-{name}"})
            offset = TopicPartition(self._filled, 0, KNOWN_OFFSET)
            [stored] = consumer.commit(offsets=[offset], asynchronous=False)
            consumer.close()
            if stored.error is not None:
                raise RuntimeError(f"group {self._prefix}-{name} cannot commit: {stored.error}")

    def checks(self):
        """Returns by feature the check that takes back a client's "works"; it returns a cell or
        None."""
        whole = dict.fromkeys(range(FILLED_PARTITIONS), FILLED_RECORDS)
        return {
            "group": lambda: self._commits_denied("group", whole),
            "commit": lambda: self._commits_denied("commit", {0: COMMITTED_OFFSET}),
            "delete-groups": self._deletion_denied,
        }

    def _commits_denied(self, feature, wanted):
        found = self._committed(f"{self._prefix}-{feature}-group")
        return None if found == wanted else Cell(WRONG, f"committed {found}, not {wanted}")

    def _committed(self, group):
        """Returns, by partition of the filled topic, the offset that the group has committed."""
        partitions = [TopicPartition(self._filled, number) for number in range(FILLED_PARTITIONS)]
        asked = [ConsumerGroupTopicPartitions(group, partitions)]
        [answer] = self._admin.list_consumer_group_offsets(asked).values()
        offsets = answer.result(PATIENCE_SECONDS).topic_partitions
        return {each.partition: each.offset for each in offsets if each.offset >= 0}

    def _listed(self):
        answer = self._admin.list_consumer_groups(request_timeout=PATIENCE_SECONDS)
        return {each.group_id: each for each in answer.result(PATIENCE_SECONDS).valid}

    def _deletion_denied(self):
        doomed = f"{self._prefix}-doomed"
        return Cell(WRONG, f"group {doomed} is there") if doomed in self._listed() else None

    def fallback(self):
        """Returns the denial when a client fell back to the classic protocol in silence: its group
        tells.

        franz-go falls back at UNSUPPORTED_VERSION, and so it does with an Apache Kafka 4 that has
        `group.coordinator.rebalance.protocols=classic`.
        """
        found = self._listed().get(f"{self._prefix}-kip-848-group")
        # A group without members and offsets is gone, so the client cannot have read by it.
        classic = found is None or found.type == GroupType.CLASSIC
        return Cell(FALLS_BACK, CLASSIC_INSTEAD) if classic else None
