"""One-shot questions that change which brokers vote as controllers. See `asks` for an `Ask`."""

from typing import Any

from raftlog.base.arguments import checked
from raftlog.client.core.arguments import NodeNumber, Timeout
from raftlog.client.core.asks import ADMIN_TIMEOUT_NS, Ask, broker_ms
from raftlog.client.core.results import check_code
from raftlog.kafka.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from raftlog.kafka.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from raftlog.kafka.versions import ApiKey


@checked
def add_controller(
    node: NodeNumber, directory_id: bytes, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """Let a broker vote as a controller. `describe_quorum` shows its directory id. The answer comes
    when the change is decided; `describe_quorum` shows when it is in force."""

    def read(answer: AddRaftVoterResponse) -> None:
        check_code(answer.error_code, f"broker {node}", answer.error_message)

    body: Any = AddRaftVoterRequest(None, broker_ms(timeout_ns), node, directory_id, ())
    return Ask(ApiKey.ADD_RAFT_VOTER, read, body, changes=True, timeout_ns=timeout_ns)


@checked
def remove_controller(
    node: NodeNumber, directory_id: bytes, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """Take the vote from a controller, which stays a broker. Refused when no majority of the other
    controllers is alive."""

    def read(answer: RemoveRaftVoterResponse) -> None:
        check_code(answer.error_code, f"broker {node}", answer.error_message)

    body: Any = RemoveRaftVoterRequest(None, node, directory_id)
    return Ask(ApiKey.REMOVE_RAFT_VOTER, read, body, changes=True, timeout_ns=timeout_ns)
