"""Keeps encoded answers that name all topics, as long as nothing in them changes.

With thousands of partitions such an answer takes tens of milliseconds to make, and it is the same
for all clients that ask alike. A client that floods a broker with the request would keep all others
waiting. All connections share the bytes.
"""

from collections.abc import Callable
from typing import NamedTuple, final

import attrs

from raftlog.base.limits import ENCODED_METADATA_MAX
from raftlog.broker.context import Context
from raftlog.kafka.codec import EncodedAnswer


class Question(NamedTuple):
    """Everything an answer depends on, beside the cluster: equal questions get equal bytes."""

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
    """The kept answer; `encode` makes it when there is none, or it is out of date."""
    kept = context.kept(KeptAnswers)
    if kept.routes != context.routes:
        kept.routes, kept.answers = context.routes, {}
    found = kept.answers.get(question)
    if found is None:
        while len(kept.answers) >= ENCODED_METADATA_MAX:
            del kept.answers[next(iter(kept.answers))]
        found = kept.answers[question] = encode()
    return found
