"""With which built-in defaults a topic was made.

Before defaults of version 2, `retention.ms` was accepted and did nothing. A topic of that time may
hold records of years, and its owner has never seen one go. So the controller writes into each topic
that it creates which defaults it was made with, as an entry of the topic's settings that no client
can set. A topic without that entry was made by an older release: it is kept without end, unless its
own `retention.ms` or the broker's `log.retention.*` was set by name.

The entry is data of the image, not a rule of `apply`: releases of both kinds hold the same image,
whatever the feature level is.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS

DEFAULTS_NAME: Final = "raftlog.defaults.version"
DEFAULTS_NOW: Final = "2"
MADE_NOW: Final = (DEFAULTS_NAME, DEFAULTS_NOW)
"""The entry that the controller adds to the settings of a new topic."""

_BEFORE_VERSION_2: Final[Mapping[str, str]] = {"retention.ms": "-1"}
assert set(_BEFORE_VERSION_2) <= set(TOPIC_CONFIGS)


def built_in_defaults(overrides: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The built-in default of every setting, for a topic with these settings of its own."""
    defaults = {name: config.default for name, config in TOPIC_CONFIGS.items()}
    if not any(name == DEFAULTS_NAME for name, _ in overrides):
        defaults.update(_BEFORE_VERSION_2)
    return defaults
