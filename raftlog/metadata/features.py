"""Feature levels: what all brokers of a cluster can read, so that new things may be written.

A broker says at registration from which to which level it can go. Group 0 raises the level only
when every registered broker supports it; a new command version, entry kind or header field is
written only at or above its level. A broker whose range misses the cluster's
level is refused.
"""

from typing import Final

FEATURE_NAME: Final = "raftlog.version"
"""The name of the level in client protocols, as Kafka has `metadata.version`."""
FEATURE_LEVEL_MIN: Final = 1
"""The oldest level at which this release can take part."""
FEATURE_LEVEL_MAX: Final = 1
"""The newest level that this release knows."""

assert 1 <= FEATURE_LEVEL_MIN <= FEATURE_LEVEL_MAX
