"""Files of recordings: whole, in order, bounded; a disk that fails ends recordings and no turn."""

import os

import pytest

from raftlog.base.errors import CorruptData, OperatingError
from raftlog.broker.incident import payload_file
from raftlog.broker.incident.payload_file import PayloadFile
from raftlog.runtime.disks import recording_files
from raftlog.runtime.disks.recording_files import BootFolders, RecordingFolder

DIGEST = payload_file.hashlib.blake2b(b"some bytes", digest_size=16).digest()


def test_payloads_are_written_once_and_read_again(tmp_path):
    with RecordingFolder(tmp_path / "new" / "folder") as folder:
        assert folder.keep(DIGEST, b"some bytes")
        assert folder.keep(DIGEST, b"some bytes")
        folder.flush()
        found = PayloadFile((folder.path / "payloads").read_bytes())
    assert len(found) == 1
    assert found.content(DIGEST, 10) == b"some bytes"
    with pytest.raises(CorruptData, match="not there"):
        found.content(bytes(16), 10)


def test_a_payload_file_that_was_cut_short_ends_with_its_last_whole_entry():
    whole = payload_file.HEAD + payload_file.entry(DIGEST, b"some bytes")
    for end in range(len(payload_file.HEAD), len(whole)):
        assert len(PayloadFile(whole[:end])) == 0
    changed = bytearray(whole)
    changed[-6] ^= 1
    with pytest.raises(CorruptData, match="damaged"):
        PayloadFile(bytes(changed)).content(DIGEST, 10)
    with pytest.raises(CorruptData, match="not a file of payloads"):
        PayloadFile(b"rlrecording")


def test_the_room_for_payloads_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_files, "RECORDED_PAYLOADS_BYTES_MAX", 10)
    with RecordingFolder(tmp_path) as folder:
        assert folder.keep(b"1" * 16, bytes(10))
        assert not folder.keep(b"2" * 16, bytes(1))
        assert folder.keep(b"1" * 16, bytes(10))


def test_a_disk_that_fails_drops_what_follows(tmp_path, monkeypatch):
    with RecordingFolder(tmp_path) as folder:
        folder.flush()

        def full(file, content):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        assert folder.keep(b"1" * 16, bytes(10))
        folder.flush()
        assert folder.failed == "No space left on device"
        assert not folder.keep(b"2" * 16, bytes(10))
        monkeypatch.undo()


def test_what_the_disk_is_behind_is_bounded(tmp_path, monkeypatch):
    with RecordingFolder(tmp_path) as folder:
        folder.flush()
        monkeypatch.setattr(recording_files, "RECORDING_BEHIND_BYTES_MAX", 0)
        assert folder.keep(b"1" * 16, bytes(10))
        monkeypatch.setattr(recording_files, "RECORDING_BEHIND_BYTES_MAX", -1)
        assert not folder.keep(b"2" * 16, bytes(10))


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OperatingError, match="cannot be written"):
        RecordingFolder(tmp_path / "file" / "folder")


def test_of_each_broker_the_newest_boots_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_files, "RECORDED_BOOTS_MAX", 3)
    for name in ("n1-boot2", "n1-boot10", "n1-boot9", "n2-boot1", "n1-bootx"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.recording").touch()
        (tmp_path / name / "payloads").touch()
    BootFolders(tmp_path)._make_room(1)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"n1-boot10", "n1-boot9", "n2-boot1", "n1-bootx"}
