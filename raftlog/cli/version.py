"""The output of `raftlog --version`: the release, and every level in which releases may differ."""

from importlib.metadata import version
from typing import Any

from raftlog.broker.peer_codec import PROTOCOL_MAX, PROTOCOL_MIN
from raftlog.kafka.versions import SERVED, api_name
from raftlog.metadata.features import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from raftlog.storage.directories.data_dir import LAYOUT_VERSION


def version_document() -> dict[str, Any]:
    """All levels, for programs."""
    return {
        "raftlog": version("raftlog"),
        "data_directory_layout": LAYOUT_VERSION,
        "peer_protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
        "feature_level": {"min": FEATURE_LEVEL_MIN, "max": FEATURE_LEVEL_MAX},
        "kafka_apis": {
            api_name(each.key): {"min": each.advertised_min, "max": each.max}
            for each in SERVED.values()
        },
    }


def version_text() -> str:
    """All levels as text, one a line."""
    found = version_document()
    peer, feature = found["peer_protocol"], found["feature_level"]
    apis = [f"{name} {each['min']}-{each['max']}" for name, each in found["kafka_apis"].items()]
    return "\n".join(
        [
            f"raftlog {found['raftlog']}",
            f"data directory layout: {found['data_directory_layout']}",
            f"peer protocol: {peer['min']} to {peer['max']}",
            f"feature level: {feature['min']} to {feature['max']}",
            f"Kafka APIs: {', '.join(apis)}",
        ]
    )
