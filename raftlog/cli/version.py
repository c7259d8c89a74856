"""What `raftlog --version` says: the release, and every level that two releases may differ in."""

from importlib.metadata import version

from raftlog.broker.peer_codec import PROTOCOL_MAX, PROTOCOL_MIN
from raftlog.kafka.versions import SERVED, api_name
from raftlog.metadata.features import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from raftlog.storage.data_dir import LAYOUT_VERSION


def version_text() -> str:
    """One level a line."""
    apis = [f"{api_name(each.key)} {each.advertised_min}-{each.max}" for each in SERVED.values()]
    return "\n".join(
        [
            f"raftlog {version('raftlog')}",
            f"data directory layout: {LAYOUT_VERSION}",
            f"peer protocol: {PROTOCOL_MIN} to {PROTOCOL_MAX}",
            f"feature level: {FEATURE_LEVEL_MIN} to {FEATURE_LEVEL_MAX}",
            f"Kafka APIs: {', '.join(apis)}",
        ]
    )
