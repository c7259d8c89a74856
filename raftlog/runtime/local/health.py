"""Asks a broker of this machine for its health, and checks that it is the broker that was meant.

Every answer of the admin listener names its cluster, its node and its process (`raftlog.runtime.
admin`). A port alone proves nothing: another cluster may listen there, and be ready.
"""

import http.client
from typing import Final, NamedTuple

from raftlog.runtime.admin import CLUSTER_HEADER, NODE_HEADER, PROCESS_HEADER
from raftlog.runtime.local.ports import HOST

ANSWER_SECONDS: Final = 2.0
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
    connection = http.client.HTTPConnection(HOST, admin_port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(_TEXT_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    failed = [line[3:].replace(" ", ": ", 1) for line in text.splitlines() if line[:3] == "[-]"]
    return Health(
        ready=answer.status == http.HTTPStatus.OK,
        lacking="; ".join(failed),
        cluster=answer.getheader(CLUSTER_HEADER, ""),
        node=answer.getheader(NODE_HEADER, ""),
        process=answer.getheader(PROCESS_HEADER, ""),
    )
