"""DescribeQuorum: the controllers, how far each is, and the brokers that follow them.

A client may ask any broker; the leader of the metadata group has the facts. The group goes by
Kafka's name, `__cluster_metadata`-0, which no other API knows. Its offsets are raft indexes, since
no client reads that log.
"""

from functools import partial

from raftlog.base.errors import ProtocolError
from raftlog.broker.context import Context
from raftlog.broker.control.quorum_view import QuorumMember, QuorumState, quorum_state
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from raftlog.kafka.shape import ZERO_ID
from raftlog.metadata.requests import DescribeQuorum, decode_answer, encode_body
from raftlog.metadata.rules.topic_names import METADATA_TOPIC


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    deadline = deadline_of(context, 2**31 - 1)
    told = partial(_told, context, request)
    context.controller.ask(ControllerKind.PROPOSE, encode_body(DescribeQuorum()), deadline, told)


def _told(context: Context, request: KafkaRequest, reply: ControllerReply) -> None:
    if request.dead:
        return
    if reply.error != 0:
        what = reply.text or None
        request.answer(DescribeQuorumResponse(error_code=reply.error, error_message=what))
        return
    try:
        state = quorum_state(decode_answer(reply.body).message)
    except ProtocolError as error:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        request.answer(DescribeQuorumResponse(error_code=code, error_message=str(error)))
        return
    request.answer(_response(context, request.body, state))


def _response(
    context: Context, body: DescribeQuorumRequest, state: QuorumState
) -> DescribeQuorumResponse:
    topics = [
        TopicDataResponse(
            topic.topic_name,
            [
                _partition(context, topic.topic_name, asked.partition_index, state)
                for asked in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return DescribeQuorumResponse(0, None, topics, _nodes(context, state))


def _partition(
    context: Context, topic: str, number: int, state: QuorumState
) -> PartitionDataResponse:
    if (topic, number) != (METADATA_TOPIC, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionDataResponse(number, code, f"only {METADATA_TOPIC}-0 has a quorum", -1, -1)
    return PartitionDataResponse(
        number,
        0,
        None,
        state.leader,
        state.term,
        state.commit + 1,
        [_replica(context, member) for member in state.members if member.voter],
        [_replica(context, member) for member in state.members if not member.voter],
    )


def _replica(context: Context, member: QuorumMember) -> ReplicaState:
    directory = context.image.directory_of(member.node)
    named = ZERO_ID if directory is None else directory.to_bytes(len(ZERO_ID), "big")
    return ReplicaState(member.node, named, member.log_end, member.heard_ms, member.caught_up_ms)


def _nodes(context: Context, state: QuorumState) -> list[Node]:
    """The addresses at which brokers reach the voters."""
    found = []
    for member in state.members:
        broker = context.image.brokers.get(member.node)
        if member.voter and broker is not None:
            place = Listener("RAFTLOG", broker.peer_host, broker.peer_port)
            found.append(Node(member.node, [place]))
    return found
