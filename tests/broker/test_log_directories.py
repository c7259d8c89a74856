"""Where replicas of one broker lie: spread evenly, then where they are registered, never twice."""

from raftlog.base.errors import DiskError
from raftlog.base.ids import METADATA_GROUP, ReplicaId
from raftlog.broker.log_directories import BrokerDirectories
from raftlog.storage.directories.log_directories import FurtherImage
from raftlog.storage.replica import Registration

B, C = "directory-00000000000000bb", "directory-00000000000000cc"
GONE = "directory-00000000000000dd"


def replica(epoch=1):
    return ReplicaId(1, 0x11, epoch)


def three():
    images = [FurtherImage(name="/b", prefix=B), FurtherImage(name="/c", prefix=C)]
    return BrokerDirectories.of_boot("/a", images)


def place(directories, group, registrations=None, epoch=1):
    return directories.path_of(
        group, replica(epoch), f"groups/{group}-{epoch}", registrations or {}
    )


def test_new_replicas_go_to_the_directory_with_the_fewest():
    directories = three()
    placed = [place(directories, group) for group in range(1, 7)]
    assert placed == [
        "groups/1-1", f"{B}/groups/2-1", f"{C}/groups/3-1",
        "groups/4-1", f"{B}/groups/5-1", f"{C}/groups/6-1",
    ]  # fmt: skip
    directories.forget(5)
    assert place(directories, 7) == f"{B}/groups/7-1"


def test_registered_replicas_count_before_they_run_and_stay_where_they_are():
    registrations = {
        1: Registration(replica(), f"{B}/groups/1-1"),
        2: Registration(replica(), "groups/2-1"),
    }
    directories = three()
    assert place(directories, 3, registrations) == f"{C}/groups/3-1"
    assert place(directories, 1, registrations) == f"{B}/groups/1-1"
    assert directories.directory_of(1) == B


def test_the_metadata_group_lies_in_the_data_directory():
    directories = three()
    place(directories, 5)
    assert place(directories, METADATA_GROUP) == f"groups/{METADATA_GROUP}-1"


def test_a_failed_directory_gets_no_new_replica_and_keeps_its_own():
    directories = three()
    mine = place(directories, 2, {2: Registration(replica(), f"{B}/groups/2-1")})
    assert directories.fail(B, DiskError("gone"))
    assert not directories.fail(B, DiskError("gone again")), "it is news once"
    registered = {2: Registration(replica(), mine)}
    assert place(directories, 2, registered) == mine
    assert str(directories.error_of(mine)) == "gone"
    assert [place(directories, group) for group in (3, 4, 5)] == [
        "groups/3-1", f"{C}/groups/4-1", "groups/5-1"
    ]  # fmt: skip
    # A younger id of the group is a learner that promised nothing: it may begin elsewhere.
    assert place(directories, 2, registered, epoch=9) == f"{C}/groups/2-9"


def test_a_directory_that_is_not_named_any_more_is_an_error_and_no_empty_one():
    directories = three()
    path = f"{GONE}/groups/2-1"
    assert place(directories, 2, {2: Registration(replica(), path)}) == path
    assert "not among log.dirs" in str(directories.error_of(path))
    assert directories.error_of("groups/1-1") is None
    assert directories.error_of(f"{B}/groups/1-1") is None


def test_a_directory_that_cannot_say_which_it_is_is_shown_and_not_used():
    nameless = FurtherImage(name="/b", error=DiskError("gone"))
    directories = BrokerDirectories.of_boot("/a", [nameless])
    assert [place(directories, group) for group in (1, 2)] == ["groups/1-1", "groups/2-1"]
    assert directories.named("/b/").error is not None
    assert directories.named("/z") is None
    assert directories.to_delete("groups/1-1") == ("groups/1-1",)
