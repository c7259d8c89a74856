from pathlib import Path

import pytest

from raftlog.cli.output.run_folder import make_run_folder
from raftlog.runtime.real_ports import SystemClock
from raftlog.verify.empty_folders import removed_if_empty


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def failing(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()
    with pytest.raises(OSError, match="no room"), removed_if_empty(folder):
        raise OSError("no room")


def test_a_run_that_failed_at_once_leaves_no_folder(tmp_path):
    failing(make_run_folder("demo", 1, None, SystemClock()))
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays(tmp_path):
    folder = make_run_folder("demo", 1, None, SystemClock())
    failing(folder, "run.json")
    assert (tmp_path / "runs" / "latest").resolve() == folder
    failing(make_run_folder("demo", 2, None, SystemClock()))
    assert [each.name for each in folder.iterdir()] == ["run.json"]
    assert not (tmp_path / "runs" / "latest").is_symlink()


def test_a_run_that_is_well_keeps_its_folder():
    folder = make_run_folder("demo", 1, None, SystemClock())
    with removed_if_empty(folder):
        pass
    assert folder.is_dir()
