"""A follower that was away comes back: it is sent what it lacks, and nothing that it has.

A leader that was elected meanwhile knows nothing of its log. It used to begin with the first entry
and sent the whole log: a broker of 200 MB was sent 200 MB each time it restarted.
"""

import pytest

from raftlog.raft.messages import Append
from tests.raft.cluster import Cluster, rid

HELD = 40


def came_back(c: Cluster, crashed: bool) -> None:
    """1 led a log that all held. It was away while 2 was elected and wrote, and is back now."""
    c.elect(1)
    for number in range(HELD):
        c.write(1, b"%d" % number)
    c.isolate(1)
    for other in (2, 3):
        c.node(other).link_down(1, c.now)
        c.node(1).link_down(other, c.now)
    c.elect(2)
    c.write(2, b"while it was away")
    if crashed:
        c.crash(1)
    c.heal()
    c.sent.clear()
    for other in (2, 3):
        c.node(other).link_up(1, c.now)
        c.node(1).link_up(other, c.now)
    c.settle()


@pytest.mark.parametrize("crashed", [False, True])
def test_it_is_sent_what_it_lacks_and_nothing_that_it_has(crashed):
    c = Cluster(3)
    came_back(c, crashed)
    assert c[1].payloads == c[2].payloads
    lacked = c[2].log.last_index - HELD - 1  # 1 began its own term with an entry
    sent = [e for m in c.sent if isinstance(m, Append) and m.to == rid(1) for e in m.entries]
    assert lacked == 2
    assert len(sent) == lacked


def test_a_link_that_breaks_again_and_again_does_not_send_the_log_either():
    c = Cluster(3)
    came_back(c, crashed=True)
    c.sent.clear()
    for _ in range(5):
        c.links_reset(1)
        c.settle()
    assert not [m for m in c.sent if isinstance(m, Append) and m.to == rid(1) and m.entries]


def test_a_read_that_fails_does_not_send_the_leader_back_to_the_first_entry():
    c = Cluster(3)
    c.elect(1)
    for number in range(HELD):
        c.write(1, b"%d" % number)
    c.isolate(1)
    c.elect(2)
    leader = c.node(2)
    progress = leader._state.progress[rid(1)]
    assert progress.match == 0
    progress.become_probe(HELD)  # its refusal told where its log ends
    progress.read_token = 7
    leader.log_read_done(7, HELD, 0, None)
    assert (progress.next, progress.waiting) == (HELD, True)
