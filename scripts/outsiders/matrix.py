"""The cells of all clients, the expected ones, and both as text, JSON and a page."""

import json
from pathlib import Path

from outsiders.clients import BY_NAME, CLIENTS
from outsiders.features import NAMES, OWN_NAMES, names_of
from outsiders.outcomes import (
    ABSENT,
    CLEAR_ERROR,
    FALLS_BACK,
    HANG,
    NOT_YET,
    OUTCOMES,
    WORKS,
    WRONG,
    Cell,
)

EXPECTED = Path(__file__).with_name("expected.json")
MARKS = {
    WORKS: "+", CLEAR_ERROR: "e", FALLS_BACK: "f", NOT_YET: "n", WRONG: "W", HANG: "H", ABSENT: ".",
}  # fmt: skip
SAID_CHARACTERS = 300


class Column:
    """The results of one client: its version and its cells by feature."""

    def __init__(self, version, cells):
        self.version = version
        self.cells = cells


def load(path=EXPECTED):
    """Returns the expected table: client name -> Column. A cell is "works", or an outcome and a
    reason.

    Raises `ValueError` for an unknown client, feature or outcome.
    """
    if not path.exists():
        return {}
    columns = {}
    for name, told in json.loads(path.read_text()).items():
        if name not in BY_NAME:
            raise ValueError(f"{path.name}: there is no client {name!r}: delete its lines")
        cells = {feature: _read(cell) for feature, cell in told["features"].items()}
        for feature, cell in cells.items():
            if feature not in names_of(name):
                raise ValueError(f"{path.name}: {name} is not asked for {feature!r}: delete it")
            if cell.outcome not in OUTCOMES:
                raise ValueError(f"{path.name}: {name}: {feature}: no outcome {cell.outcome!r}")
        columns[name] = Column(told["version"], cells)
    return columns


def _read(cell):
    return Cell(WORKS) if cell == WORKS else Cell(*cell)


def save(columns, path=EXPECTED):
    """Write the expected table, one line a cell, clients and features in their own order."""
    path.write_text(to_json(columns) + "\n")


def to_json(columns):
    """Returns the table as JSON text: a line a cell, so that a difference is a line of a diff."""
    clients = []
    for name, column in columns.items():
        cells = [
            f"   {json.dumps(feature)}: {json.dumps(_plain(cell))}"
            for feature, cell in column.cells.items()
        ]
        head = f' {json.dumps(name)}: {{\n  "version": {json.dumps(column.version)},\n'
        clients.append(head + '  "features": {\n' + ",\n".join(cells) + "\n  }\n }")
    return "{\n" + ",\n".join(clients) + "\n}"


def _plain(cell):
    return WORKS if cell.outcome == WORKS else [cell.outcome, cell.said]


def merged(expected, seen):
    """Returns the expected table with what was seen.

    A reason stays while its outcome does, since a person may have written it.
    """
    columns = dict(expected)
    for name, column in seen.items():
        before = expected.get(name)
        cells = dict(before.cells) if before is not None else {}
        for feature, cell in column.cells.items():
            if feature not in cells or cells[feature].outcome != cell.outcome:
                cells[feature] = Cell(cell.outcome, cell.said[:SAID_CHARACTERS])
        ordered = {feature: cells[feature] for feature in names_of(name) if feature in cells}
        columns[name] = Column(column.version, ordered)
    return {client.name: columns[client.name] for client in CLIENTS if client.name in columns}


def differences(expected, seen):
    """Returns a line for each way in which what was seen is not what the table says."""
    for name, column in seen.items():
        wanted = expected.get(name)
        if wanted is None:
            yield f"{name}: the expected table does not have this client"
            continue
        if column.version != wanted.version:
            yield f"{name}: version {column.version}, the table is of {wanted.version}"
        for feature, cell in column.cells.items():
            before = wanted.cells.get(feature)
            if before is None:
                yield f"{name}: {feature}: {_told(cell)}, the table has no such cell"
            elif before.outcome != cell.outcome:
                yield f"{name}: {feature}: expected {_told(before)}, saw {_told(cell)}"


def other_words(expected, seen):
    """Returns a line for each cell that is as expected, for a reason that the table does not
    tell."""
    for name, column in seen.items():
        wanted = expected[name].cells if name in expected else {}
        for feature, cell in column.cells.items():
            before = wanted.get(feature)
            if before is None or before.outcome != cell.outcome:
                continue
            if before.said != cell.said[:SAID_CHARACTERS]:
                yield f"{name}: {feature}: {_told(cell)}; the table: {before.said}"


def holes(columns):
    """Returns a line for each client and each cell that the table lacks."""
    for client in CLIENTS:
        if client.name not in columns:
            yield f"{client.name}: not in the table"
            continue
        column = columns[client.name]
        for feature in names_of(client.name):
            if feature not in column.cells:
                yield f"{client.name}: {feature}: no cell"
            elif column.cells[feature].outcome != WORKS and not column.cells[feature].said:
                yield f"{client.name}: {feature}: no reason"


def _told(cell):
    return f"{cell.outcome} ({cell.said[:SAID_CHARACTERS]})" if cell.said else cell.outcome


def to_text(columns):
    """Returns the matrix for a terminal: a row a feature, a column a client, one mark a cell."""
    marks = "   ".join(f"{mark} {outcome}" for outcome, mark in MARKS.items())
    lines = [f"{number:3} {name} {columns[name].version}" for number, name in enumerate(columns, 1)]
    lines += ["", " " * 24 + "".join(f"{n:4}" for n in range(1, len(columns) + 1))]
    for feature in (*NAMES, *OWN_NAMES):
        if not any(feature in column.cells for column in columns.values()):
            continue
        row = "".join(f"{_mark(column, feature):>4}" for column in columns.values())
        lines.append(f"{feature:24}{row}")
    return "\n".join([*lines, "", f"  {marks}"])


def _mark(column, feature):
    return MARKS[column.cells[feature].outcome] if feature in column.cells else " "
