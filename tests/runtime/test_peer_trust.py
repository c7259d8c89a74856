"""A short secret stops the start where seals are required, and is warned of elsewhere."""

import attrs
import pytest

from raftlog.base.errors import ConfigError
from raftlog.base.trace import ListTracer
from raftlog.runtime.network.handshake import Trust
from raftlog.runtime.network.peer_trust import short_secrets, trust_of
from raftlog.runtime.settings import config_file
from raftlog.runtime.settings.config_file import parse_properties
from tests.runtime.test_config_file import GOOD

LONG, LAST_TOO_SHORT = b"s" * 32, b"s" * 31


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(LONG)
    path.chmod(0o600)
    text = GOOD + f"raftlog.cluster.secret.file = {path}\n"
    return config_file.judge(parse_properties(text, "file"), "file")


@pytest.mark.parametrize(
    ("setting", "sealed", "required"),
    [
        ("", False, False),
        ("", True, True),
        ("allowed", False, False),
        ("allowed", True, False),
        ("required", False, True),
        ("required", True, True),
    ],
)
def test_the_setting_wins_over_the_data_directory(config, setting, sealed, required):
    told = attrs.evolve(config, peer_seal=setting)
    tracer = ListTracer()
    assert trust_of(told, tracer, sealed=sealed) == Trust((LONG,), required)
    assert tracer.events == []


@pytest.mark.parametrize("secrets", [(LAST_TOO_SHORT,), (LONG, LAST_TOO_SHORT)])
def test_a_short_secret(config, secrets):
    told = attrs.evolve(config, secrets=secrets)
    tracer = ListTracer()
    assert trust_of(told, tracer, sealed=False) == Trust(secrets, False)
    (event,) = tracer.events
    assert event.name == "secret-too-short"
    assert "has 31 bytes, a seal needs 32" in str(event.fields)
    assert "docs/guides/secrets.md" in str(event.fields)
    for sealed, setting in [(True, ""), (False, "required")]:
        with pytest.raises(ConfigError, match="has 31 bytes, a seal needs 32"):
            trust_of(attrs.evolve(told, peer_seal=setting), tracer, sealed=sealed)
    assert len(short_secrets(secrets)) == 1
