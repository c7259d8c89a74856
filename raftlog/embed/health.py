"""Tells whether a cluster is healthy, from the status of its brokers.

Metadata shows the in-sync replicas as they were reported a moment ago. The admin listener's /status
shows the leaders' own view, which does not lag.
"""

import http.client
import json
from collections.abc import Iterable
from typing import Any, Final

from raftlog.base.errors import OperatingError
from raftlog.runtime.local.ports import HOST

HEALTHY_SECONDS: Final = 30.0
"""How long to wait until a cluster is healthy, unless the user says otherwise."""
ANSWER_SECONDS = 2.0


def broker_status(admin_port: int) -> dict[str, Any]:
    """The /status of a broker; `OperatingError` when it does not answer."""
    connection = http.client.HTTPConnection(HOST, admin_port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OperatingError(f"no status: {error}", on=f"{HOST}:{admin_port}") from error
    finally:
        connection.close()
    assert isinstance(status, dict), type(status)
    return status


def lacking(statuses: Iterable[dict[str, Any]]) -> str | None:
    """The first thing that the cluster lacks, from the status of all brokers: a group whose leader
    is not ready, or not all of whose voters are in sync. None when it lacks nothing."""
    led: dict[int, dict[str, Any]] = {}
    names: dict[int, str] = {}
    for status in statuses:
        for group in status["groups"]:
            number = group["group"]
            names[number] = group["name"]
            # A replica has no role while its broker reads it from the disk, or after the broker had
            # to close it.
            if group.get("role") != "leader":
                continue
            newest = led.get(number)
            if newest is None or newest["term"] < group["term"]:
                led[number] = group
    for number, name in sorted(names.items()):
        leader = led.get(number)
        if leader is None or not leader["ready"]:
            return f"{name} has no leader"
        if len(leader["in_sync"]) < len(leader["voters"]) or leader["joint"]:
            return f"{name} has in sync {leader['in_sync']} only"
    return None


def newest_leader(name: str, statuses: Iterable[dict[str, Any]]) -> int | None:
    """The node that leads a group in the highest term, from the status of these brokers."""
    found = [
        (group["term"], status["node_id"])
        for status in statuses
        for group in status["groups"]
        if group["name"] == name and group.get("role") == "leader"
    ]
    return int(max(found)[1]) if found else None
