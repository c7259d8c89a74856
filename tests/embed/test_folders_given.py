"""A folder that cannot be one is refused by the name of the argument; one that cannot be made, by
its path. An empty name put brokers into the present folder."""

import pytest

from raftlog.base.errors import OperatingError, WrongValue
from raftlog.embed.cluster import Cluster
from raftlog.embed.recording.recording import recording
from raftlog.embed.replicated_log import ReplicatedLog


@pytest.mark.parametrize("name", ["", "a\0b"])
@pytest.mark.parametrize(
    ("made", "argument"),
    [
        (lambda name: Cluster(directory=name), "directory"),
        (lambda name: Cluster(fixture=name), "fixture"),
        (lambda name: Cluster(record=name), "record"),
        (lambda name: ReplicatedLog(directory=name), "directory"),
        (recording, "path"),
    ],
)
def test_a_name_that_names_nothing_is_refused(name, made, argument):
    with pytest.raises(WrongValue, match=f"^{argument} must name a file or folder, not "):
        made(name)


@pytest.mark.parametrize("processes", [False, True])
def test_a_file_is_no_folder_of_a_cluster(processes, tmp_path):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(OperatingError, match="cannot make the folder of a cluster") as refused:
        Cluster(1, directory=file, processes=processes).start()
    assert refused.value.on == str(file)
    with pytest.raises(OperatingError, match="cannot make the folder of a cluster"):
        ReplicatedLog(replicas=1, directory=file / "below").append(b"one")
    assert file.is_file()
