import pytest


@pytest.fixture
def secret(tmp_path):
    """A file with the secret that brokers prove to each other."""
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o600)
    return path
