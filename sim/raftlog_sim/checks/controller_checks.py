"""Checks what a controller tells other brokers: it rests on nothing that is not committed.

An answer names the version of the image that it rests on. The controller decides on an image that
is ahead of the committed one, and waits with each answer until its own image has come that far. An
answer that leaves before is taken back when the controller fails.
"""

from typing import TYPE_CHECKING, Final

from raftlog.metadata.refusals import Refusal
from raftlog.metadata.requests import decode_answer

if TYPE_CHECKING:
    from raftlog.broker.peer_messages import ControllerReply
    from raftlog_sim.world.node import Node

_OF_NO_IMAGE: Final = (Refusal.MALFORMED, Refusal.FEATURE_UNSUPPORTED, Refusal.BUSY)
"""Refusals that speak of the request alone, or of how much waits."""


def told(node: "Node", reply: "ControllerReply") -> tuple[str, str]:
    """Returns (invariant, error or "") for an answer as it leaves the controller."""
    name = "controller-tells-committed"
    if not reply.body:
        return name, ""  # it sends the asker to another node
    answer = decode_answer(reply.body)
    version = node.broker.context.image.version
    if answer.version <= version or answer.refusal in _OF_NO_IMAGE:
        return name, ""
    what = "done" if answer.refusal is None else answer.refusal.name
    return name, (
        f"node {node.number} answers {what} by version {answer.version} of the metadata, and"
        f" {version} is committed"
    )
