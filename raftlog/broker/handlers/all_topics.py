"""Answers that name all topics, kept encoded for as long as nothing in them changes.

With thousands of partitions such an answer takes tens of milliseconds to make, and it is the same
for everybody who asks alike: who floods a broker with it would keep all others waiting. The bytes
are shared by all connections that they wait on.
"""

from collections.abc import Callable
from typing import NamedTuple, final

import attrs

from raftlog.base.limits import ENCODED_METADATA_MAX
from raftlog.broker.context import Context
from raftlog.kafka.codec import EncodedAnswer


class Question(NamedTuple):
    """All that an answer depends on, besides the cluster: who asks the same gets the same bytes."""

    version: int
    listener: str
    topic_operations: bool
    cluster_operations: bool


@final
@attrs.define(eq=False)
class KeptAnswers:
    """Answers as of one `Context.routes`; a change of the cluster ends them all."""

    routes: int = -1
    answers: dict[Question, EncodedAnswer] = attrs.Factory(dict)


def kept_answer(
    context: Context, question: Question, encode: Callable[[], EncodedAnswer]
) -> EncodedAnswer:
    """The answer, made by `encode` when it is not there or not true any more."""
    kept = context.kept(KeptAnswers)
    if kept.routes != context.routes:
        kept.routes, kept.answers = context.routes, {}
    found = kept.answers.get(question)
    if found is None:
        while len(kept.answers) >= ENCODED_METADATA_MAX:
            del kept.answers[next(iter(kept.answers))]
        found = kept.answers[question] = encode()
    return found
