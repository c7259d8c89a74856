"""Which client a worker uses: by name, or mixed by its number."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from jepsen_style_tests.clients import aio, confluent, kafka_python
from jepsen_style_tests.clients.aio import AioClient
from jepsen_style_tests.clients.confluent import ConfluentClient
from jepsen_style_tests.clients.face import ClientSettings, SubjectClient
from jepsen_style_tests.clients.kafka_python import KafkaPythonClient
from jepsen_style_tests.clients.lines import LineClient
from raftlog.base.errors import OperatingError

MIXED: Final = "mixed"
_MAKERS: Final[dict[str, Callable[[ClientSettings], SubjectClient]]] = {
    confluent.NAME: ConfluentClient,
    kafka_python.NAME: KafkaPythonClient,
    aio.NAME: AioClient,
}
PROGRAMS: Final = ("kafka-clients", "franz-go")
"""Clients in other languages: each needs the command of a program, which `--programs` gives."""
NAMES: Final = (*_MAKERS, *PROGRAMS, MIXED)
OWN: Final = "raftlog"
"""Our own client, which only consumes in groups here."""
GROUP_NAMES: Final = (*_MAKERS, OWN, MIXED)
Commands = Mapping[str, tuple[str, ...]]
"""The name of a client in another language -> the command of its program."""


def read_commands(path: Path) -> dict[str, tuple[str, ...]]:
    """The commands in this file. `OperatingError` when it does not hold what it must."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OperatingError(f"cannot be read: {error}", on=str(path), do=_PREPARE) from error
    if not isinstance(found, dict) or not all(map(_is_command, found.values())):
        raise OperatingError(
            "is not an object of client names and commands", on=str(path), do=_PREPARE
        )
    if strange := [name for name in found if name not in PROGRAMS]:
        raise OperatingError(
            f"names {', '.join(strange)}, not {' or '.join(PROGRAMS)}", on=str(path), do=_PREPARE
        )
    return {name: tuple(command) for name, command in found.items()}


def _is_command(found: object) -> bool:
    words = found if isinstance(found, list) else []
    return bool(words) and all(isinstance(word, str) for word in words)


_PREPARE: Final = "scripts/strangers --subjects FILE prepares the programs and writes that file"


def check_choice(choice: str, commands: Commands) -> None:
    """`OperatingError` when the client that was chosen has no program."""
    if choice in PROGRAMS and choice not in commands:
        raise OperatingError(
            "needs a program", on=f"--client {choice}", do=f"give --programs FILE: {_PREPARE}"
        )


def client_name(choice: str, number: int, commands: Commands) -> str:
    """The client of worker `number`: the one that was chosen, or each in turn."""
    if choice != MIXED:
        return choice
    names = [*_MAKERS, *commands]
    return names[number % len(names)]


def open_client(name: str, settings: ClientSettings, commands: Commands) -> SubjectClient:
    """A client of this name; `Unknown` when it cannot reach anybody."""
    make = _MAKERS.get(name) or partial(LineClient, commands[name])
    return make(settings)
