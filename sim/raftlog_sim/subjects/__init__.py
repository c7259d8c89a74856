"""What is simulated beside our own brokers: other people's libraries, as a control of the tools."""

from typing import Final

GUEST_PROFILES: Final = ("resets", "kills", "restarts")
