"""The settings that let tests make a broker or its disk fail, and when they are refused."""

from collections.abc import Callable
from typing import Final, NamedTuple

from raftlog.base.errors import ConfigError
from raftlog.base.ports import Disk
from raftlog.runtime.settings.settings_file import SettingsFile

FAULTS: Final = "raftlog.testing.faults"
FAULTS_DIRECTORY: Final = f"{FAULTS}.directory"
TEST_DISK: Final = "RAFTLOG_TEST_DISK"
"""The variable that asks for a test disk (`raftlog.testing.faulty_disk`)."""
TestDisk = Callable[[str, Disk], Disk | None]
"""Called with the path of a log directory and its disk: what to use in place of that disk; None
where it stays."""


class FaultSettings(NamedTuple):
    """Whether /faults is served, and where faults are kept ("": in memory)."""

    on: bool = False
    directory: str = ""


NO_FAULTS: Final = FaultSettings()


def fault_settings(settings: SettingsFile) -> FaultSettings:
    """The fault settings of a file; `ConfigError` for a folder of faults without faults."""
    found = FaultSettings(settings.flag(FAULTS), settings.text(FAULTS_DIRECTORY))
    if found.directory and not found.on:
        raise ConfigError(
            f"it has no meaning without {FAULTS} = true",
            on=settings.where(FAULTS_DIRECTORY),
            do="leave it out, or switch faults on",
        )
    return found


def refuse_reachable(faults: FaultSettings, loopback_only: bool, settings: SettingsFile) -> None:
    """Raise `ConfigError` where faults are on and a listener is not on loopback."""
    if loopback_only or not faults.on:
        return
    raise ConfigError(
        "a broker that others can reach must not fail on demand",
        on=settings.where(FAULTS),
        do="bind every listener to 127.0.0.1, or leave the setting out",
    )
