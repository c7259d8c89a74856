"""The files with the secrets that brokers prove to each other."""

import os
import stat
from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.errors import ConfigError
from raftlog.runtime.regular_files import open_regular
from raftlog.runtime.settings.settings_file import SettingsFile

SECRET_BYTES_MIN: Final = 16
"""The least size of any secret, in bytes. A cluster with a secret below
`raftlog.seal.keys.SECRET_BYTES_MIN` starts with a warning, and not at all where seals are required
(`peer_trust`)."""
SECRET_KEY: Final = "raftlog.cluster.secret.file"
OTHER_SECRET_KEY: Final = "raftlog.cluster.secret.other.file"


def read_secrets(settings: SettingsFile) -> tuple[bytes, ...]:
    """The present secret, and the other one while the cluster changes from one to the other;
    `ConfigError` as in `_read_secret`."""
    found = [_read_secret(settings, SECRET_KEY)]
    if settings.text(OTHER_SECRET_KEY):
        found.append(_read_secret(settings, OTHER_SECRET_KEY))
        if found[0] == found[1]:
            raise ConfigError(
                "both files hold the same secret",
                on=settings.where(OTHER_SECRET_KEY),
                do="leave it out, or name the secret that is going out of use",
            )
    return tuple(found)


def _read_secret(settings: SettingsFile, key: str) -> bytes:
    """The secret; `ConfigError` when another user owns or can read the file, when it is no regular
    file, or when it holds too little. A link is followed: its target is what is judged."""
    path, where = settings.required(key), settings.where(key)
    try:
        with os.fdopen(open_regular(os.path.realpath(path), os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            secret = file.read(4096).strip()
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error}",
            on=where,
            do=f"(umask 077; head -c 32 /dev/urandom | base64 > {path}), the same on every broker",
        ) from error
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{path} belongs to another user (number {found.st_uid}), who can change it",
            on=where,
            do=f"chown it to the user that runs the broker (number {os.geteuid()}), or to root",
        )
    mode = stat.S_IMODE(found.st_mode)
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
