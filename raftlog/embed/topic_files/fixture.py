"""An export as the first content of a new cluster: `Cluster(fixture=...)` and `raftlog up
--from`."""

from pathlib import Path
from typing import Final, Self, final

import attrs
import trio

from raftlog.base.errors import OperatingError
from raftlog.base.units import millis
from raftlog.client.trio_driver import Client
from raftlog.embed.topic_files.folder import Advance, Export, ignore_progress
from raftlog.embed.topic_files.importing import import_topics
from raftlog.runtime.local.state import STATE_FILE

_CALL_NS: Final = millis(60_000)


@final
@attrs.frozen
class Fixture:
    """A checked export. Call `open` before the cluster is founded, and `load` when it is ready."""

    export: Export

    @classmethod
    def open(cls, folder: Path, directory: Path | None, advance: Advance = ignore_progress) -> Self:
        """Check a whole export, for a new cluster in `directory`. `OperatingError` for a bad
        export, and when `directory` has a cluster already, which may have these topics."""
        if directory is not None and (directory / STATE_FILE).exists():
            raise OperatingError(
                "it has a cluster already, and topics are loaded into a new one only",
                on=str(directory),
                do="start it without them, or remove the directory",
            )
        return cls(Export.open(folder, advance))

    def load(self, bootstrap: str, advance: Advance = ignore_progress) -> None:
        """Create the topics in the cluster at these addresses. It blocks; do not call it in an
        event loop."""

        async def main() -> None:
            async with Client(bootstrap, call_timeout_ns=_CALL_NS) as client:
                await import_topics(client, self.export, advance)

        trio.run(main)
