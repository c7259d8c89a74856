"""The errors of raftlog, by the party at fault.

* `LocalMisuse`: our caller broke the contract of a function; raised early, never answered on a
  wire. `WrongType` and `WrongValue` are about one argument, and are Python's TypeError and
  ValueError too.
* `RemoteError`: a peer or client broke the protocol. Only its own connection or request fails.
* `OperatingError`: the machine or the operator: disks, ports, configuration.
* `CorruptData`: stored bytes are not what was written; repair or stop, never go on.

A bug of our own is an `assert`. Every error says what failed, on what, and what to do next: the
three fields travel to the command line and into JSON unchanged.
"""


class RaftlogError(Exception):
    """Base of all errors that raftlog raises on purpose."""

    def __init__(self, what: str, *, on: str = "", do: str = "") -> None:
        super().__init__(what, on, do)
        self.what = what
        self.on = on
        self.do = do

    def __str__(self) -> str:
        place = f" ({self.on})" if self.on else ""
        advice = f": {self.do}" if self.do else ""
        return f"{self.what}{place}{advice}"

    def as_json(self) -> dict[str, str]:
        """The error as the command line prints it under `--format json`."""
        return {"what": self.what, "on": self.on, "do": self.do}


class LocalMisuse(RaftlogError):
    """The caller broke a contract; the object is unchanged."""


class WrongType(LocalMisuse, TypeError):
    """An argument of a public function is of a wrong type; the text begins with its name."""


class WrongValue(LocalMisuse, ValueError):
    """An argument of a public function is out of its bounds; the text begins with its name."""


class RemoteError(RaftlogError):
    """The peer or client at the other end of a connection is at fault."""


class ProtocolError(RemoteError):
    """Bytes from a wire do not parse; raised before anything is allocated for them."""


class OperatingError(RaftlogError):
    """The machine or its operator: a disk, a port, a file, a setting."""


class ConfigError(OperatingError):
    """A setting is wrong; `on` names file, line and key."""


class DiskError(OperatingError):
    """A disk operation failed; the caller must treat its bytes as not written."""


class DiskFull(DiskError):
    """No space is left; the replicas concerned reopen when there is room again."""


class CorruptData(OperatingError):
    """Stored bytes fail their checksum, chain, version or bounds; never served, never skipped."""


class FutureFormat(OperatingError):
    """A file or peer is of a version that this release does not read; both versions are named."""
