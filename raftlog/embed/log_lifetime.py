"""The opening and closing of a `ReplicatedLog`: open with the first use, closed once.

    not open ---- first use, or `with` ----> open ---- close, or the end of `with` ----> closed
        ^                                      |
        +---- `with` that could not begin -----+

Laws:

1. Any number of threads may be the first: the client and the log's own cluster are opened once.
2. After an error of an opening, the next use tries again.
3. A closed log stays closed.
4. A log that nobody closes ends with its object, or with the program, and warns.
"""

import atexit
import os
import threading
import time
import warnings
import weakref
from typing import Any, Final, NamedTuple, final

from raftlog.base.errors import LocalMisuse
from raftlog.base.units import NANOS_PER_SECOND, Nanos
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import create_topics, new_topic
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.system import refuse_inside_trio
from raftlog.embed.cluster import Cluster
from raftlog.kafka.error_codes import ErrorCode

_CONFIGS: Final = {
    "raftlog.read.consistency": "linearizable",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""The topic's settings. Neither age nor size removes an entry, even if the cluster's defaults
would."""
_LEFT_SECONDS_MIN: Final = 0.001
"""The least time that the opening leaves for the call that opened."""


class UsedLog(NamedTuple):
    """The client of an open log, and the seconds that a call has for its own requests."""

    client: BlockingClient
    seconds: float


@final
class LogLifetime:
    """Opens and closes one log. `owned` is the cluster that the log starts and stops; without it
    `found` is the running cluster, or the addresses of its brokers. `timeout` is in seconds, the
    longest of any call."""

    def __init__(
        self, owned: Cluster | None, found: Cluster | str, replicas: int, topic: str, timeout: float
    ) -> None:
        self._owned = owned
        self._found = found
        self._replicas = replicas
        self._topic = topic
        self._timeout = timeout
        self._lock = threading.RLock()
        """Held while the log is opened or closed. A signal handler may close the log in the thread
        that is opening it, so the lock is one that a thread may take again."""
        self._open: _OpenLog | None = None
        self._closed = False

    def use(self, timeout: float | None) -> UsedLog:
        """Open the log if it is not open, within the `timeout` of the call. The start of an own
        cluster is not counted. Raises what the opening raises; `LocalMisuse` when it is closed."""
        refuse_inside_trio("this method", "use `async with ReplicatedLog(...)`")
        seconds = self._timeout if timeout is None else min(timeout, self._timeout)
        opened = self._open or self._opened()
        opened.refuse_fork()
        if opened.has_topic:
            return UsedLog(opened.client, seconds)
        began = time.perf_counter()
        self._make_topic(opened.client, seconds)
        opened.has_topic = True
        left = seconds - (time.perf_counter() - began)
        return UsedLog(opened.client, max(left, _LEFT_SECONDS_MIN))

    def _opened(self) -> "_OpenLog":
        with self._lock:
            self._refuse_closed()
            if self._open is None:
                # The client gives a record up after this time. So the log can be closed even if
                # there is no leader.
                limit = nanos(self._timeout)
                self._open = _OpenLog(self._owned, self._found, self._topic, limit)
                self._open.end_with(self)
                self._refuse_closed()  # a signal handler may have closed it meanwhile
            return self._open

    def _refuse_closed(self) -> None:
        if self._closed:
            self.close()
            raise LocalMisuse(f"the log {self._topic!r} is closed", do="make a new ReplicatedLog")

    def _make_topic(self, client: BlockingClient, seconds: float) -> None:
        """Any number of calls may do this at once: all but one find the topic there."""
        topic = new_topic(self._topic, 1, self._replicas, configs=_CONFIGS)
        try:
            for result in client.ask(create_topics([topic], timeout_ns=nanos(seconds))):
                result.check()
        except OutcomeUnknown as error:
            # It is unknown of the topic. The call that opens the log has done nothing yet.
            raise NotDone(f"the log is not open: {error.what}", on=error.on, do=error.do) from error
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def close(self, error: BaseException | None = None, *, for_good: bool = True) -> None:
        """Close the log if it is open. After an error of the block it does not wait for appends.
        Without `for_good` the next use opens it again."""
        if self._open is not None:
            refuse_inside_trio("ReplicatedLog.close", "use `async with ReplicatedLog(...)`")
        with self._lock:
            self._closed = self._closed or for_good
            opened, self._open = self._open, None
            if opened is not None:
                opened.close(error)


@final
class _OpenLog:
    """The client of an open log, and the log's own cluster. `has_topic` is set once the cluster is
    known to have the log's topic. Nothing here refers to the log, so the log can be collected."""

    def __init__(
        self, owned: Cluster | None, found: Cluster | str, name: str, limit: Nanos
    ) -> None:
        self._owned = owned
        self._name = name
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._ended = False
        self.has_topic = False
        self._collected: weakref.finalize[Any, Any] | None = None
        if owned is not None:
            owned.start()
        try:
            address = found if isinstance(found, str) else found.bootstrap_servers
            client = BlockingClient(address, delivery_timeout_ns=limit, call_timeout_ns=limit)
            self.client = client.__enter__()
        except BaseException:
            if owned is not None:
                owned.stop()
            raise

    def end_with(self, lifetime: LogLifetime) -> None:
        """End when the log is collected, or else with the program."""
        self._collected = weakref.finalize(lifetime, self._forgotten)
        self._collected.atexit = False
        atexit.register(self._at_exit)

    def refuse_fork(self) -> None:
        """Raise `LocalMisuse` in a process that was forked from the one that opened the log."""
        if os.getpid() != self._process:
            raise LocalMisuse(
                f"the log {self._name!r} was opened before this process was forked",
                do="make a ReplicatedLog(cluster=addresses) in each process",
            )

    def close(self, error: BaseException | None) -> None:
        """Close the client, then stop the cluster. Only the first call does. A process that was
        forked from the one that opened it leaves both to that one."""
        if self._collected is not None:
            self._collected.detach()
        atexit.unregister(self._at_exit)
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._ended:
                return
            self._ended = True
            try:
                self.client.__exit__(type(error) if error else None, error, None)
            finally:
                if self._owned is not None:
                    self._owned.stop()

    def _forgotten(self) -> None:
        """The collector may call this in any thread, also in one that the client needs. So another
        thread waits for the end."""
        if os.getpid() != self._process:
            return
        threading.Thread(target=self._abandon, name="raftlog forgotten", daemon=True).start()
        self._warn()

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        self._abandon()
        self._warn()

    def _abandon(self) -> None:
        """Close without waiting for appends, because nobody is left to hear of them."""
        self.close(LocalMisuse(f"the log {self._name!r} was not closed"))

    def _warn(self) -> None:
        text = f"ReplicatedLog {self._name!r} was not closed: call its close(), or use `with`"
        warnings.warn(text, ResourceWarning, stacklevel=2)


def nanos(seconds: float) -> Nanos:
    """Seconds as nanoseconds."""
    return Nanos(int(seconds * NANOS_PER_SECOND))
