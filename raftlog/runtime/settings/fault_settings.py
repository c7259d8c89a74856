"""The settings that let tests make a broker fail, and when they are refused."""

from typing import Final, NamedTuple

from raftlog.base.errors import ConfigError
from raftlog.runtime.settings.settings_file import SettingsFile

FAULTS: Final = "raftlog.testing.faults"
FAULTS_DIRECTORY: Final = f"{FAULTS}.directory"


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
