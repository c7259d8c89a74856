"""Decides what this broker demands of its peers, from its configuration and data directory."""

from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.errors import ConfigError
from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.runtime.network.handshake import Trust
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.runtime.settings.secret_file import OTHER_SECRET_KEY, SECRET_KEY
from raftlog.seal.keys import SECRET_BYTES_MIN

ROTATE: Final = (
    "make a secret of at least 32 bytes and change to it: "
    'docs/guides/secrets.md, section "Change the secret"'
)


def short_secrets(secrets: tuple[bytes, ...]) -> list[tuple[str, str]]:
    """The setting and what is wrong with it, for each secret that is too short for a seal."""
    return [
        (key, f"the secret has {amount(len(secret), 'byte')}, a seal needs {SECRET_BYTES_MIN}")
        for key, secret in zip((SECRET_KEY, OTHER_SECRET_KEY), secrets, strict=False)
        if len(secret) < SECRET_BYTES_MIN
    ]


def trust_of(config: ServerConfig, tracer: Tracer, *, sealed: bool) -> Trust:
    """The proofs that this broker demands of its peers.

    `sealed`: the data directory says that this cluster requires seals. The setting
    `raftlog.peer.seal` overrides it where it is given.

    A short secret stops the start where seals are required (ConfigError), and is traced elsewhere:
    a cluster of an older release must be able to start, and to change its secret.
    """
    required = config.peer_seal == "required" or (sealed and config.peer_seal != "allowed")
    for key, problem in short_secrets(config.secrets):
        if required:
            raise ConfigError(f"raftlog.peer.seal is required, and {problem}", on=key, do=ROTATE)
        tracer.emit(TraceEvent("secret-too-short", key, (("why", problem), ("do", ROTATE))))
    return Trust(config.secrets, required)
