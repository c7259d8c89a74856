"""Makes ids of new topics."""

from raftlog.base.ids import TopicId
from raftlog.base.ports import Entropy
from raftlog.kafka.shape import ZERO_ID


def new_topic_id(entropy: Entropy) -> TopicId:
    """A random id, never zero, whose text begins without a dash: tools take that for a flag."""
    for _ in range(64):
        topic_id = entropy.bytes(16)
        if topic_id != ZERO_ID and topic_id[0] >> 2 != 62:
            return TopicId(topic_id)
    raise AssertionError("64 random ids in a row began with a dash")
