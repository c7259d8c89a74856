"""UnregisterBroker: the cluster forgets a broker that is gone for good.

The broker must be fenced, no controller, and without replicas: move its partitions first.
"""

from functools import partial

from raftlog.base.ids import NodeId
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from raftlog.metadata.commands import UnregisterBroker
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.requests import SubmitCommand


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: UnregisterBrokerRequest = request.body
    then = partial(_decided, request, body.broker_id)
    calls = ControllerCalls(context.controller, deadline_of(context, 2**31 - 1), then)
    if body.broker_id < 0:
        calls.known(kafka_code(Refusal.UNKNOWN_BROKER))
    else:
        calls.add(SubmitCommand(command=UnregisterBroker(node=NodeId(body.broker_id))))
    calls.begin()


def _decided(request: KafkaRequest, node: int, outcomes: list[CallOutcome]) -> None:
    if request.dead:
        return
    (outcome,) = outcomes
    error, message = outcome.error, outcome.message
    if error == kafka_code(Refusal.UNKNOWN_BROKER):
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"Broker ID {node} is not currently registered"
    request.answer(UnregisterBrokerResponse(error_code=error, error_message=message or None))
