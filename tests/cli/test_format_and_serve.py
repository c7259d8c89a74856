"""`raftlog format`, `serve` and `inspect`: one broker and its directory."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


def properties(directory: Path, node: int, voters: str) -> Path:
    secret = directory / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    path = directory / f"broker{node}.properties"
    path.write_text(
        f"node.id={node}\nlog.dirs={directory}/data{node}\nlisteners=PLAINTEXT://:0\n"
        f"raftlog.peer.listener=127.0.0.1:0\ncontroller.quorum.voters={voters}\n"
        f"raftlog.cluster.secret.file={secret}\n"
    )
    return path


def test_format_once(raftlog, tmp_path):
    ids = raftlog("format", "--random", "--format", "json").json
    assert len(ids["cluster_id"]) == 32
    assert len(set(ids["directory_ids"])) == 3
    assert raftlog("format", "--random").code == 0
    config = properties(tmp_path, 1, "1@127.0.0.1:19000")
    own = f"1:{ids['directory_ids'][0]}"
    arguments = ["format", "--config", config, "--cluster-id", ids["cluster_id"]]
    wrong = raftlog(*arguments, "--controller", f"2:{ids['directory_ids'][1]}")
    assert wrong.code == 1
    assert "controller.quorum.voters" in wrong.err
    done = raftlog(*arguments, "--controller", own, "--format", "json")
    assert done.json["node"] == 1
    again = raftlog(*arguments, "--controller", own)
    assert again.code == 1
    assert "formatted already" in again.err
    shown = raftlog("inspect", tmp_path / "data1", "--format", "json").json
    assert ids["cluster_id"] in json.dumps(shown)


def test_two_controllers_found_no_cluster(raftlog, tmp_path):
    """A file may name two, for so many may be left of those that founded it."""
    ids = raftlog("format", "--random", "--format", "json").json
    config = properties(tmp_path, 1, "1@127.0.0.1:19000,2@127.0.0.1:19001")
    both = [f"{node}:{ids['directory_ids'][node]}" for node in (1, 2)]
    given = ["--controller", both[0], "--controller", both[1]]
    refused = raftlog("format", "--config", config, "--cluster-id", ids["cluster_id"], *given)
    assert refused.code == 1
    assert "found it with 1, 3 or 5" in refused.err
    assert not (tmp_path / "data1").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--cluster-id", "00" * 16),
        ("--config", "x", "--cluster-id", "12", "--controller", "1:2"),
    ],
)
def test_format_wants_all_its_ids(arguments, raftlog, tmp_path):
    config = properties(tmp_path, 1, "1@127.0.0.1:19000")
    given = [config if each == "x" else each for each in arguments]
    assert raftlog("format", *given).code == 64


def test_format_says_what_is_missing(raftlog, tmp_path):
    """It named all three, whichever were there."""
    config = properties(tmp_path, 1, "1@127.0.0.1:19000")
    ran = raftlog("format", "--config", config)
    assert "missing: --cluster-id, --controller (raftlog format --random" in ran.err
    ran = raftlog("format", "--cluster-id", "ab" * 16, "--controller", "1:ab")
    assert "missing: --config (" in ran.err


def test_serve_needs_a_good_configuration(raftlog, tmp_path):
    assert raftlog("serve").code == 64
    missing = raftlog("serve", "--config", tmp_path / "none", "--format", "json")
    assert missing.code == 1
    assert "cannot be read" in missing.json_error["what"]
    config = properties(tmp_path, 1, "1@127.0.0.1:19000")
    typo = raftlog("serve", "--config", config, "--set", "listenrs=x")
    assert typo.code == 1
    assert "did you mean listeners?" in typo.err
    (tmp_path / "secret").chmod(0o644)
    open_secret = raftlog("serve", "--config", config)
    assert open_secret.code == 1
    assert "chmod 600" in open_secret.err


@pytest.mark.parametrize("user", [0, 1000])
def test_serve_warns_root(user, raftlog, tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: user)
    config = properties(tmp_path, 1, "1@127.0.0.1:19000")
    (tmp_path / "file").touch()
    ran = raftlog("serve", "--config", config, "--set", f"log.dirs={tmp_path / 'file' / 'data'}")
    assert ran.code == 1
    assert ("runs as root" in ran.err) is (user == 0)


def test_inspect_of_nothing(raftlog, tmp_path):
    assert raftlog("inspect", tmp_path / "none").code == 1
    assert raftlog("inspect", tmp_path).code == 1
