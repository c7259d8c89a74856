"""Answers operators: is the broker alive, is it ready, what runs here, counters; all JSON-ready.

livez, readyz -> {"ok": bool, "checks": {name: "ok" or the reason}}
metrics       -> [[name, "counter" or "gauge", {label: value}, number], ...]
status        -> {"version": 1, "node_id": ..., "groups": [...], ...}
"""

from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import fired
from raftlog.broker.context import Context
from raftlog.broker.control.metadata_loader import MetadataLoader
from raftlog.broker.control.registration import BrokerRegistration
from raftlog.broker.events import AdminCall, AdminReply
from raftlog.broker.front.clients import Clients
from raftlog.broker.replicas.hosts import Host, HostState
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.broker.replicas.stopping import Stopping
from raftlog.broker.replicas.volume import Volume
from raftlog.kafka.versions import api_name
from raftlog.partition.replica import PartitionReplica

Metric = list[Any]
VERSION: Final = 1
_PREFIX: Final = "raftlog_"


class Parts(Protocol):
    """The broker whose state is shown."""

    context: Context
    volume: Volume
    manager: PartitionManager
    loader: MetadataLoader
    multi: MultiRaft
    registration: BrokerRegistration
    stopping: Stopping
    clients: Clients


@final
@attrs.define(eq=False)
class Admin:
    """Answers AdminCalls."""

    broker: Parts

    def call(self, event: AdminCall) -> None:
        """Answer in this turn."""
        commands = {
            "livez": self.livez,
            "readyz": self.readyz,
            "metrics": self.metrics,
            "status": self.status,
        }
        command = commands.get(event.command)
        if command is None:
            known = ", ".join(commands)
            value: object = {
                "error": {"what": "unknown command", "on": event.command, "do": f"use {known}"}
            }
        else:
            value = command()
        self.broker.context.effects.admin_replies.append(AdminReply(event.token, value))

    # --- health ---

    def livez(self) -> dict[str, Any]:
        """The liveness checks: this process cannot cure a poisoned directory or a refused boot."""
        poisoned = self.broker.volume.poisoned
        refused, message = self.broker.registration.refused, self.broker.registration.message
        return _checks(
            {
                "data_directory": "ok" if poisoned is None else str(poisoned),
                "registration": "ok" if refused is None else f"{refused.name}: {message}",
            }
        )

    def readyz(self) -> dict[str, Any]:
        """Whether clients are served: alive, registered, not fenced or stopping, replicas run."""
        own = self.broker.context.image.brokers.get(self.broker.context.node)
        fenced = own is None or own.fenced
        closed = [host for host in self._hosts() if host.state is not HostState.RUNNING]
        return _checks(
            {
                **self.livez()["checks"],
                "registered": self._registered(),
                "fenced": "the cluster holds this broker for dead" if fenced else "ok",
                "metadata": self._metadata(),
                "replicas": f"{len(closed)} not running" if closed else "ok",
                "stopping": "the broker is stopping" if self.broker.stopping.asked else "ok",
            }
        )

    def _registered(self) -> str:
        registration = self.broker.registration
        if registration.registered:
            return "ok"
        return "this boot is over" if registration.ended else "the controller has not answered yet"

    def _metadata(self) -> str:
        """Whether the metadata is current: a loader that stopped leaves an old image."""
        if self.broker.loader.stopped:
            return f"followed no further: {self.broker.loader.stopped}"
        return "ok" if self.broker.context.caught_up else "older than this boot's registration"

    def _hosts(self) -> list[Host]:
        return [self.broker.manager.hosts[group] for group in sorted(self.broker.manager.hosts)]

    # --- status ---

    def status(self) -> dict[str, Any]:
        """Everything that `raftlog cluster status` and the demo show of one broker."""
        context = self.broker.context
        cluster = context.image.cluster_id
        return {
            "version": VERSION,
            "node_id": context.node,
            "cluster_id": context.cluster.hex(),
            "founded": cluster is not None,
            "boot": context.boot,
            "directory_id": f"{context.directory:016x}",
            "rack": context.config.rack,
            "registered": self.broker.registration.registered,
            "stopping": self.broker.stopping.asked,
            "ready": self.readyz()["ok"],
            "metadata_version": context.image.version,
            "controller": self._controller(),
            "links": [self._link(node) for node in sorted(context.sessions)],
            "groups": [self._group(host) for host in self._hosts()],
        }

    def _controller(self) -> int | None:
        replica = self.broker.context.replicas.get(METADATA_GROUP)
        return None if replica is None or replica.leader is None else replica.leader.node

    def _link(self, node: Any) -> dict[str, Any]:
        led, followed = self.broker.multi.covered_groups(node)
        return {
            "node_id": node,
            "session": self.broker.context.sessions[node].session,
            "groups_led_idle": led,
            "groups_followed_idle": followed,
        }

    def _group(self, host: Host) -> dict[str, Any]:
        found: dict[str, Any] = {
            "group": host.spec.group,
            "name": host.label,
            "replica": str(host.spec.replica),
            "state": host.state.value,
        }
        if host.why:
            found["why"] = host.why
        if host.replica is not None:
            found.update(_replica(host.replica))
        return found

    # --- metrics ---

    def metrics(self) -> list[Metric]:
        """Counters and gauges, in a fixed order; their labels are bounded by what is served."""
        context = self.broker.context
        found: list[Metric] = [
            _gauge("replicas", len(context.replicas)),
            _gauge("leaders", sum(r.is_leader for r in context.replicas.values())),
            _gauge("connections", len(self.broker.clients.connections)),
            _gauge("links", len(context.sessions)),
            _gauge("rounds_in_flight", len(self.broker.volume.rounds)),
            _gauge("jobs_in_flight", context.jobs_pending),
            _gauge("metadata_version", context.image.version),
            _gauge("pinned_bytes", context.ledger.pinned_bytes),
            _gauge("held_bytes", context.ledger.held_bytes),
            _gauge("waiting_bytes", context.ledger.waiting_bytes),
        ]
        found += [_counter(n, context.counters[n], {}) for n in sorted(context.counters)]
        requests = self.broker.clients.requests_by_api
        for api_key in sorted(requests):
            labels = {"api": api_name(api_key)}
            found.append(_counter("requests", requests[api_key], labels))
        for name, count in fired().items():
            found.append(_counter("probe", count, {"name": name}))
        return found


def _replica(replica: PartitionReplica) -> dict[str, Any]:
    durable = replica.log.durable_end
    return {
        "role": replica.role.name.lower(),
        "term": replica.term,
        "leader": None if replica.leader is None else replica.leader.node,
        "ready": replica.ready,
        "commit": replica.commit,
        "high_watermark": replica.high_watermark,
        "log_start": replica.log_start,
        "last_index": replica.log.last_index,
        "next_offset": replica.log.next_offset,
        "durable_index": None if durable is None else durable.raft_index,
        "chain": f"{replica.log.last_chain:016x}",
        "voters": [str(voter) for voter in replica.membership.voters],
        "learners": [str(learner) for learner in replica.membership.learners],
        "joint": replica.membership.joint,
        "in_sync": [each.node for each in replica.in_sync],
        "uncommitted_bytes": replica.uncommitted_bytes,
        "gaps": [
            {"from": gap.first, "until": gap.until, "file": gap.path, "why": gap.why}
            for gap in replica.log.gaps
        ],
    }


def _checks(checks: dict[str, str]) -> dict[str, Any]:
    return {"ok": all(reason == "ok" for reason in checks.values()), "checks": checks}


def _gauge(name: str, number: int) -> Metric:
    return [_PREFIX + name, "gauge", {}, number]


def _counter(name: str, number: int, labels: dict[str, str]) -> Metric:
    return [f"{_PREFIX}{name}_total", "counter", labels, number]
