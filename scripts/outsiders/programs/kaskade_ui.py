"""kaskade, a user interface in the terminal: keys are pressed, and its tables are read.

It runs without a terminal, by the pilot of the library that draws it. A cell works when the screen
shows what the cluster holds.
"""

from collections.abc import Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

import speaking
from kaskade.admin import KaskadeAdmin
from kaskade.consumer import KaskadeConsumer
from kaskade.deserializers import Deserialization
from textual.widgets import DataTable, Input

WIDE = (200, 60)
"""Columns and lines of the terminal: every column of every table has room."""
LOOK_SECONDS = 0.1
NOT_KNOWN_YET = "…"
KNOWN_LAG = speaking.FILLED_RECORDS - speaking.KNOWN_OFFSET


class Screens:
    """The screens of one running interface, and the keys of its user."""

    def __init__(self, app, pilot):
        self._app = app
        self._pilot = pilot

    def rows(self, table):
        """Returns the rows that a table shows now, as text; none when it is not on the screen."""
        found = self._app.screen.query(f"#{table}").results(DataTable)
        return [[str(cell) for cell in shown.get_row(key)] for shown in found for key in shown.rows]

    async def until(self, condition: Callable[[], object]):
        """Wait until the condition holds, however long: the feature has a limit of its own.

        An error that the interface shows its user is raised.
        """
        while not condition():
            for each in self._app._notifications:
                if each.severity == "error":
                    raise RuntimeError(f"{each.title}: {each.message}")
            await self._pilot.pause(LOOK_SECONDS)

    async def press(self, *keys):
        await self._pilot.press(*keys)

    def focused(self, table):
        """Returns this table, to which keys go from now on."""
        return self._app.screen.query_one(f"#{table}", DataTable).focus()

    def field(self, name):
        """Returns a field of the form on the screen, or None."""
        return next(iter(self._app.screen.query(f"#{name}").results(Input)), None)

    async def topic(self, name):
        """Returns the row of a topic, once the interface knows all of it, and puts the cursor
        there."""

        def row():
            rows = self.rows("topics-table")
            found = [each for each in rows if each[0] == name]
            return found[0] if found and NOT_KNOWN_YET not in found[0] else None

        await self.until(row)
        names = [each[0] for each in self.rows("topics-table")]
        self.focused("topics-table").move_cursor(row=names.index(name))
        await self._pilot.pause(LOOK_SECONDS)
        return row()

    async def details(self, name):
        """Open the details of a topic."""
        await self.topic(name)
        await self.press("d")
        await self.until(lambda: self._app.screen.query("#partitions-table"))

    async def fill(self, **values):
        """Type these values into the form that opens."""
        await self.until(lambda: all(self.field(name) for name in values))
        for name, value in values.items():
            self.field(name).value = value

    async def said(self, words):
        """Wait until the interface says this to its user."""
        await self.until(lambda: any(words in each.message for each in self._app._notifications))


@asynccontextmanager
async def administration(place):
    """Yields the screens of the administrator."""
    app = KaskadeAdmin({"bootstrap.servers": place.bootstrap}, refresh_interval=0)
    async with app.run_test(size=WIDE) as pilot:
        yield Screens(app, pilot)


async def list_topics(place):
    async with administration(place) as screens:
        shown = await screens.topic(place.filled)
    records = speaking.FILLED_PARTITIONS * speaking.FILLED_RECORDS
    wanted = [str(speaking.FILLED_PARTITIONS), "3", "3"]
    speaking.expect(shown[1:4], wanted, "partitions, replicas and those in sync")
    speaking.expect(shown[6], f"≈{records}", "records")


async def create(place):
    async with administration(place) as screens:
        await screens.topic(place.filled)
        await screens.press("n")
        await screens.fill(name=place.topic, partitions="2", replicas="3", retention="3600000")
        await screens.press("ctrl+s")
        await screens.said(f"Created topic '{place.topic}'")


async def edit(place, **values):
    async with administration(place) as screens:
        await screens.topic(place.topic)
        await screens.press("e")
        await screens.fill(**values)
        await screens.press("ctrl+s")
        await screens.said(f"Updated topic '{place.topic}'")


async def grow(place):
    await edit(place, partitions="3")


async def alter_configs(place):
    await edit(place, retention="7200000")


async def delete(place):
    async with administration(place) as screens:
        await screens.topic(place.topic)
        await screens.press("ctrl+d")
        await screens.fill(**{"topic-confirmation": place.topic})
        await screens.press("enter")
        await screens.said(f"Deleted topic '{place.topic}'")


async def describe(place):
    async with administration(place) as screens:
        await screens.details(place.topic)
        shown = screens.rows("partitions-table")
    replicas = [sorted(row[6].strip("[]").split(", ")) for row in shown]
    speaking.expect(replicas, [["1", "2", "3"]] * 2, "replicas")
    speaking.expect([row[0] for row in shown if row[1] in row[6]], ["0", "1"], "partitions led")


async def describe_configs(place):
    async with administration(place) as screens:
        await screens.details(place.topic)
        shown = dict(screens.rows("configurations-table"))
    speaking.expect(shown["retention.ms"], "3600000", "retention.ms")


async def known(place, table):
    """Returns the rows of the known group in this table of the filled topic."""
    async with administration(place) as screens:
        await screens.details(place.filled)
        return [row[1:] for row in screens.rows(table) if row[0] == place.known_group]


async def list_groups(place):
    speaking.expect(len(await known(place, "groups-table")), 1, "lines of the known group")


async def describe_groups(place):
    [[coordinator, *shown]] = await known(place, "groups-table")
    wanted = ["empty", "", "1", "0", str(KNOWN_LAG)]
    speaking.expect(shown, wanted, "state, assignor, partitions, members and lag")
    speaking.expect(coordinator.partition("/")[0] in place.bootstrap, True, coordinator)


async def group_offsets(place):
    end = str(speaking.FILLED_RECORDS)
    wanted = [["0", str(speaking.KNOWN_OFFSET), end, str(KNOWN_LAG)]]
    shown = await known(place, "group-offsets-table")
    speaking.expect(shown, wanted, "partition, committed, end and lag")


async def consume(place):
    """Read page after page: a page has 25 records."""
    settings = {"bootstrap.servers": place.bootstrap, "auto.offset.reset": "earliest"}
    text = Deserialization.STRING
    app = KaskadeConsumer(place.filled, settings, {}, {}, {}, text, text)
    async with app.run_test(size=WIDE) as pilot:
        screens = Screens(app, pilot)
        found = []
        while True:
            await screens.until(lambda known=found: len(screens.rows("records-table")) > len(known))
            found = screens.rows("records-table")
            if len(found) >= len(speaking.FILLED_VALUES):
                break
            screens.focused("records-table")
            await screens.press("n")
    places = sorted(f"{row[4]}:{row[5]}" for row in found)
    speaking.expect(sorted(row[1] for row in found), speaking.FILLED_VALUES, "records")
    speaking.expect(places, speaking.FILLED_VALUES, "partitions and offsets")


READS = speaking.absent("it shows records, and writes none")
ALONE = speaking.absent("it reads by assignment and commits nothing")
NO_SCREEN = speaking.absent("it has no screen for this")
FEATURES = {
    "create": create,
    "grow": grow,
    "describe": describe,
    "delete": delete,
    "describe-configs": describe_configs,
    "alter-configs": alter_configs,
    "consume": consume,
    "list-groups": list_groups,
    "list-topics": list_topics,
    "describe-groups": describe_groups,
    "group-offsets": group_offsets,
    "consume-time": NO_SCREEN,
    "delete-records": NO_SCREEN,
    "reassign": NO_SCREEN,
    "group": ALONE,
    "kip-848": ALONE,
}

if __name__ == "__main__":
    speaking.main(version("kaskade"), lambda name: FEATURES.get(name, READS))
