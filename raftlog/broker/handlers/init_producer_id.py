"""InitProducerId: gives a producer an id of its own, with epoch 0.

The metadata group hands ids out in blocks; this broker passes them on one by one. A block that was
begun before a crash is lost, never given twice. Transactional producers are refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients report at once: a retriable error would make
them ask again until their own timeout.
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from raftlog.metadata.commands import AllocateProducerIds
from raftlog.metadata.requests import SubmitCommand

BLOCK_IDS: Final = 1_000
"""Ids of a block, as many as Kafka's: a broker that starts a thousand producers asks once."""


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with the next id of this broker's block, or of the block that it asks for."""
    body: InitProducerIdRequest = request.body
    if body.transactional_id is not None:
        request.answer(InitProducerIdResponse(0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    context.kept(ProducerIds).serve(context, request)


@final
@attrs.define(eq=False)
class ProducerIds:
    """The ids of this broker's block: from `next_id` up to `end_id`, exclusive.

    `waiting` requests are served from the next block. `asking` says that one is on its way.
    """

    next_id: int = 0
    end_id: int = 0
    waiting: list[KafkaRequest] = attrs.Factory(list)
    asking: bool = False

    def serve(self, context: Context, request: KafkaRequest) -> None:
        """Answer with an id, now or when a block arrives."""
        if self.next_id < self.end_id:
            self._give(request)
            return
        self.waiting.append(request)
        if not self.asking:
            self._ask(context)

    def _give(self, request: KafkaRequest) -> None:
        request.answer(InitProducerIdResponse(0, 0, self.next_id, 0))
        self.next_id += 1

    def _ask(self, context: Context) -> None:
        self.asking = True
        deadline = Instant(context.now + context.config.request_ns)
        calls = ControllerCalls(context.controller, deadline, partial(self._allocated, context))
        command = AllocateProducerIds(node=context.node, count=BLOCK_IDS)
        calls.add(SubmitCommand(command=command))
        calls.begin()

    def _allocated(self, context: Context, outcomes: list[CallOutcome]) -> None:
        """Take a block, or its failure: then the clients may ask again."""
        self.asking = False
        outcome = outcomes[0]
        waiting, self.waiting = self.waiting, []
        alive = [request for request in waiting if not request.dead]
        if outcome.error:
            for request in alive:
                request.answer(InitProducerIdResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self.next_id, self.end_id = outcome.value, outcome.value + BLOCK_IDS
        for request in alive:
            self.serve(context, request)
