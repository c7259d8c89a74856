"""Keys out of the cluster's secret: HKDF with SHA-256 (RFC 5869)."""

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 32
"""A sealed link is as strong as its secret. A dialler proves the secret to whatever answers at the
address, so an attacker in that place could try short secrets offline."""


def derive(secret: bytes, salt: bytes, label: bytes, size: int = KEY_BYTES) -> bytes:
    """`size` bytes that only a holder of `secret` can compute, independent for each label."""
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=label).derive(secret)
