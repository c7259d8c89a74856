"""The file with the secret that brokers prove to each other."""

import os
import stat
from typing import Final, Protocol

from raftlog.base.amounts import amount
from raftlog.base.errors import ConfigError

SECRET_BYTES_MIN: Final = 16


class Settings(Protocol):
    """A configuration file, as `config_file` reads it."""

    def required(self, *keys: str) -> str: ...
    def where(self, key: str) -> str: ...


def read_secret(settings: Settings) -> bytes:
    """The secret; `ConfigError` when others can read the file, or when it holds too little."""
    key = "raftlog.cluster.secret.file"
    path, where = settings.required(key), settings.where(key)
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(4096).strip()
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error}",
            on=where,
            do=f"(umask 077; head -c 32 /dev/urandom | base64 > {path}), the same on every broker",
        ) from error
    if mode & 0o077:
        raise ConfigError(
            f"{path} can be read by others (mode {mode:04o})", on=where, do=f"chmod 600 {path}"
        )
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"{path} holds {amount(len(secret), 'byte')}, at least {SECRET_BYTES_MIN} are needed",
            on=where,
            do=f"(umask 077; head -c 32 /dev/urandom | base64 > {path}), the same on every broker",
        )
    return secret
