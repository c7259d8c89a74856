"""A cluster that records: what its real brokers were told plays again, byte for byte."""

import io
import json
from pathlib import Path

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.incidents.incident_folder import IncidentFolder
from raftlog_sim.playing.scenario_files import told

import raftlog
from raftlog.base.errors import OperatingError
from raftlog.client.blocking import BlockingClient

RECORD = b"a record that is large enough to lie beside the rows " * 20


@pytest.fixture(scope="module")
def incident(tmp_path_factory) -> Path:
    """Three brokers; the leader is killed under a producer, and comes back."""
    folder = tmp_path_factory.mktemp("incident") / "recordings"
    with raftlog.Cluster(brokers=3, record=folder) as cluster:
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("orders", partitions=2, replication_factor=3)
            for number in range(50):
                client.produce("orders", b"%d" % number + RECORD, partition=0)
            leader = cluster.leader_of("orders", 0)
            cluster.kill(leader)
            for number in range(50):
                client.produce("orders", b"%d" % number + RECORD, partition=0)
        cluster.restart(leader)
        secrets = [path.read_bytes() for path in cluster.directory.rglob("*secret*")]
    for path in folder.iterdir():
        content = path.read_bytes()
        assert not any(secret.strip() in content for secret in secrets if secret.strip())
    return folder


def test_every_broker_of_a_recorded_cluster_plays_again(incident):
    found = IncidentFolder(incident)
    assert len(found.boots) == 4
    for boot in found.boots:
        replay = found.replay(boot)
        assert replay.run() is None, boot.name
        assert replay.position > 5
        assert replay.ended == "the recording is over: the broker has ended"


def test_records_lie_once_beside_the_rows(incident):
    rows = b"".join(path.read_bytes() for path in incident.glob("*.recording"))
    payloads = (incident / "payloads").read_bytes()
    assert RECORD not in rows
    # The client's frame is one payload of the leader, the batch another one of both followers.
    assert 100 <= payloads.count(RECORD) <= 210


# --- raftlog incident -----------------------------------------------------------------------------


def test_show_tells_each_boot(incident, capsys):
    assert main(["incident", "show", str(incident), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["recordings"]) == 4
    assert sum(each["events"].get("Request", 0) for each in document["recordings"]) >= 100
    assert main(["incident", "show", str(incident), "n1"]) == 0
    assert "n1-boot1: " in capsys.readouterr().out


def test_replay_says_that_all_are_equal(incident, capsys):
    assert main(["incident", "replay", str(incident)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "equal"
    assert len(lines) == 5


def test_replay_tells_a_damaged_recording(incident, capsys, tmp_path):
    for path in incident.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = tmp_path / "n2-boot1.recording"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert main(["incident", "replay", str(tmp_path), "n2-boot1"]) == 1
    assert "checksum" in capsys.readouterr().err


def test_step_goes_forth_and_back(incident, capsys, monkeypatch):
    commands = "next 9\nback 2\nuntil event Request\nshow\nstate\ndiff\nuntil end\nnonsense\nquit"
    monkeypatch.setattr("sys.stdin", io.StringIO(commands))
    assert main(["incident", "step", str(incident), "n1-boot1", "--format", "json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["turn"] for each in answers[:2]] == [9, 7]
    assert "Request" in answers[2]["answer"][0]
    assert any("group 0" in line for line in answers[4]["answer"])
    assert answers[6]["answer"][1] == "ended: the recording is over: the broker has ended"
    assert "no command 'nonsense'" in answers[7]["answer"][0]


def test_step_wants_one_boot(incident, capsys):
    assert main(["incident", "step", str(incident)]) == 64
    assert "name one of n1-boot1" in capsys.readouterr().err


def test_a_scenario_has_the_shape_of_the_incident(incident, capsys):
    assert main(["incident", "to-scenario", str(incident)]) == 0
    text = capsys.readouterr().out
    steps = told("it", text).steps
    assert [step.kind for _, step in steps].count("produce") >= 2
    assert sum(int(step.argument("count")) for _, step in steps if step.kind == "produce") >= 100
    assert "set brokers 3" in text


def test_other_folders_are_refused(tmp_path, capsys):
    assert main(["incident", "show", str(tmp_path)]) == 64
    assert "no recordings lie there" in capsys.readouterr().err
    assert main(["incident", "show", str(tmp_path / "nowhere")]) == 64


# --- Cluster(record=...) --------------------------------------------------------------------------


def test_recordings_of_two_clusters_do_not_share_a_folder(tmp_path):
    (tmp_path / "something").touch()
    with pytest.raises(OperatingError, match="not empty"):
        raftlog.Cluster(brokers=1, record=tmp_path).start()


@pytest.mark.processes
def test_processes_record_themselves_each_boot_in_a_folder_of_its_own(tmp_path):
    with raftlog.Cluster(brokers=3, record=tmp_path, processes=True) as cluster:
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("orders", partitions=1, replication_factor=3)
            for _ in range(10):
                client.produce("orders", RECORD, partition=0)
        leader = cluster.leader_of("orders", 0)
        cluster.kill(leader)
        cluster.restart(leader)
    found = IncidentFolder(tmp_path)
    assert len(found.boots) == 4
    assert {path.name for path in tmp_path.iterdir()} == {each.name for each in found.boots}
    for boot in found.boots:
        replay = found.replay(boot)
        assert replay.run() is None, boot.name
        assert replay.position > 5
        killed = boot.node == leader and boot.boot == 1
        assert ("the process was killed" in replay.ended) == killed, replay.ended


def test_a_broker_of_this_process_takes_the_setting_too(tmp_path):
    settings = {"raftlog.recordings.directory": str(tmp_path)}
    with raftlog.Cluster(brokers=1, settings=settings):
        pass
    (boot,) = IncidentFolder(tmp_path).boots
    assert boot.path == tmp_path / "n1-boot1" / "n1-boot1.recording"
    assert IncidentFolder(tmp_path).replay(boot).run() is None
