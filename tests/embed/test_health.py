import http.server
import threading

import pytest

from raftlog.base.errors import OperatingError
from raftlog.embed.cluster import Cluster
from raftlog.embed.health import broker_status, lacking, newest_leader


def group(number=1, role="leader", term=3, in_sync=(1, 2, 3), **more):
    return {
        "group": number,
        "name": f"t-{number}",
        "role": role,
        "term": term,
        "ready": True,
        "joint": False,
        "in_sync": list(in_sync),
        "voters": ["a", "b", "c"],
        **more,
    }


def statuses(*groups):
    return [{"groups": [each]} for each in groups]


def test_a_whole_cluster_lacks_nothing():
    assert lacking(statuses(group(), group(role="follower", in_sync=()))) is None
    assert lacking([]) is None


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ([group(role="follower")], "t-1 has no leader"),
        ([group(ready=False)], "t-1 has no leader"),
        ([group(), group(2, role="candidate")], "t-2 has no leader"),
        ([group(in_sync=(1, 3))], "t-1 has in sync [1, 3] only"),
        ([group(joint=True)], "t-1 has in sync"),
        ([group(term=4, in_sync=(2,)), group(term=3)], "t-1 has in sync [2] only"),
    ],
)
def test_what_is_missing_is_named(groups, what):
    told = lacking(statuses(*groups))
    assert told is not None
    assert told.startswith(what)


def test_a_closed_replica_has_no_role():
    closed = {"group": 1, "name": "t-1", "state": "failed"}
    assert lacking(statuses(closed)) == "t-1 has no leader"
    assert lacking(statuses(closed, group(in_sync=(1, 2)))) == "t-1 has in sync [1, 2] only"
    assert newest_leader("t-1", statuses(closed)) is None


def test_the_newest_leader_is_that_of_the_highest_term():
    told = [{"node_id": 4 - term, "groups": [group(term=term)]} for term in (3, 2)]
    assert newest_leader("t-1", told) == 1
    assert newest_leader("t-2", told) is None


def test_a_leader_of_an_older_term_counts_no_longer():
    assert lacking(statuses(group(term=3, in_sync=(1,)), group(term=4))) is None


@pytest.mark.processes
def test_a_broker_tells_its_status():
    with Cluster(brokers=1) as cluster:
        port = cluster._running.place(1).admin_port
        status = broker_status(port)
        assert status["node_id"] == 1
        assert lacking([status]) is None
    with pytest.raises(OperatingError):
        broker_status(port)


def test_an_answer_that_is_no_status():
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"not json")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(OperatingError):
            broker_status(server.server_port)
        thread.join()
