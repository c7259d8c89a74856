"""The log directories of one broker process, opened at its start."""

from types import SimpleNamespace

from raftlog_sim.base.streams import Stream

from raftlog.base.trace import ListTracer
from raftlog.runtime.disks.log_dirs import FurtherDisk, open_directories
from raftlog.storage.directories.data_dir import open_directory
from tests.storage.making import SPEC
from tests.storage.moving import THERE, Moving


def opened(world):
    """Open the directories of that world, as a start does; also what the trace told."""
    tracer = ListTracer()
    further = [FurtherDisk(name="/b", disk=world.other), FurtherDisk(name="/c", disk=world.third)]
    machine = SimpleNamespace(
        disk=world.first, descriptors=None, further=further, entropy=Stream(1, "ids")
    )
    return open_directories(machine, "/a", open_directory(world.first), tracer), tracer.events


def test_a_directory_that_fails_while_a_move_is_settled_is_told_and_the_start_goes_on():
    """Regression: the broker did not start, although the disk of another directory failed alone."""
    world = Moving()
    world.move(THERE)
    world.whole()
    world.reopen()
    world.switch(SPEC.path)
    world.other.fail("remove", SPEC.path)
    found, events = opened(world)
    assert [each.name for each in found.images if each.error is not None] == ["/b"]
    assert [(each.name, each.where) for each in events] == [("log-directory-failed", "/b")]
    found, events = opened(world)
    assert not [each for each in found.images if each.error is not None]
    assert [(each.name, each.where) for each in events] == [("move-settled", THERE)]
