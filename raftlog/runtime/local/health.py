"""Asks a broker of this machine for its health, and checks that it is the broker that was meant.

Every answer of the admin listener names its cluster, its node and its process (`raftlog.runtime.
admin_headers`). A port alone proves nothing: another cluster may listen there, and be ready.
"""

from typing import Final, NamedTuple

from raftlog.runtime.admin_headers import CLUSTER_HEADER, NODE_HEADER, PROCESS_HEADER
from raftlog.runtime.local.broker_processes import ask_admin
from raftlog.runtime.local.ports import HOST

_TEXT_BYTES_MAX: Final = 4096


class Health(NamedTuple):
    """An answer to /readyz. `lacking` names the checks that failed."""

    ready: bool
    lacking: str
    cluster: str
    node: str
    process: str


def health_of(admin_port: int) -> Health | None:
    """The health that is answered at this admin port; None when there is no answer."""
    answer = ask_admin(HOST, admin_port, "/readyz")
    if answer is None:
        return None
    text = answer.body[:_TEXT_BYTES_MAX].decode(errors="replace")
    failed = [line[3:].replace(" ", ": ", 1) for line in text.splitlines() if line[:3] == "[-]"]
    return Health(
        ready=answer.good,
        lacking="; ".join(failed),
        cluster=answer.headers.get(CLUSTER_HEADER, ""),
        node=answer.headers.get(NODE_HEADER, ""),
        process=answer.headers.get(PROCESS_HEADER, ""),
    )
