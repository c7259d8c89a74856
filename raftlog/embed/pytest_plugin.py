"""The pytest plugin, the only importer of pytest. It starts nothing until a test asks.

The wheel `pytest-raftlog` names it to pytest. Without that wheel a conftest.py does,
`pytest_plugins = ["raftlog.embed.pytest_plugin"]`. It is no entry point of raftlog's own, for then
pytest would rewrite every assertion of the product.

A failed test leaves the history and report of `raftlog_history`, and the brokers' output, in a
folder of its own below `raftlog-failures/` (`--raftlog-failures DIR`), which its output names.
A test that passes leaves nothing.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.embed.cluster import Cluster
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.recording import recording
from raftlog.embed.test_names import seed_of, topic_name
from raftlog.runtime.real_ports import OsEntropy

__all__ = ["topic_name"]

_HISTORY: Final = pytest.StashKey[Recording]()
_FAILED: Final = pytest.StashKey[bool]()
_RUN_SEED: Final = pytest.StashKey[int]()
_SEEDS: Final = 1 << 32
_PREFIX: Final = "raftlog_"
_TO_A_WORKER: Final = "raftlog_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("raftlog")
    group.addoption(
        "--raftlog-seed",
        type=int,
        metavar="N",
        help="the seed of which raftlog_seed makes each test's own; a failed test prints it",
    )
    group.addoption(
        "--raftlog-failures",
        default="raftlog-failures",
        metavar="DIR",
        help="where failed tests leave histories, reports and the brokers' output",
    )
    group.addoption(
        "--raftlog-record",
        action="store_true",
        help="record the brokers of the fixtures; failed tests leave that for `raftlog incident`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed, unless it is given. Workers of pytest-xdist get that of the whole run."""
    given = config.getoption("--raftlog-seed")
    handed: dict[str, Any] = getattr(config, "workerinput", {})
    seed = handed.get(_TO_A_WORKER, given)
    config.stash[_RUN_SEED] = OsEntropy().below(_SEEDS) if seed is None else seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the run's seed."""
    node.workerinput[_TO_A_WORKER] = node.config.stash[_RUN_SEED]


# --- fixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def raftlog_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of three brokers in this process, for all tests of the run (of each worker, under
    pytest-xdist). Tests that break brokers take `raftlog_own_cluster`."""
    with _folder_for_recordings(pytestconfig) as record, Cluster(brokers=3, record=record) as found:
        yield found


@pytest.fixture
def raftlog_own_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of three brokers for this test alone, which may break it."""
    with _folder_for_recordings(pytestconfig) as record, Cluster(brokers=3, record=record) as found:
        yield found


@contextlib.contextmanager
def _folder_for_recordings(config: pytest.Config) -> Iterator[str | None]:
    """A folder that goes with its cluster; None unless clusters are to be recorded."""
    if not config.getoption("--raftlog-record"):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="raftlog-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture
def raftlog_faults(request: pytest.FixtureRequest, raftlog_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of the run, for a test that breaks it: after the test all faults are ended,
    brokers that are paused go on and dead ones start. A failed test shows how often each fault was
    used."""
    yield raftlog_cluster
    told = raftlog_cluster.recover()
    if told:
        request.node.add_report_section("teardown", "raftlog faults", told)


@pytest.fixture
def raftlog_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of the run uses: made of the test's own name."""
    return topic_name(request.node.nodeid)


@pytest.fixture
def raftlog_seed(request: pytest.FixtureRequest) -> int:
    """A number for this test's dice, `random.Random(raftlog_seed)`: the same again under the same
    `--raftlog-seed`."""
    return seed_of(request.config.stash[_RUN_SEED], request.node.nodeid)


@pytest.fixture
def raftlog_history(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """A history for `raftlog.verify.record(client, raftlog_history)`. It is judged when the test
    has passed, and fails it if it is not valid. Call `raftlog_history.read_back(servers)` last."""
    folder = _folder_of(request.node)
    folder.mkdir(parents=True, exist_ok=True)
    with recording(folder / "history.jsonl") as history:
        request.node.stash[_HISTORY] = history
        yield history


# --- what a failed test leaves --------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge the history of a test that has passed."""
    result = yield
    history = item.stash.get(_HISTORY, None)
    if history is not None:
        try:
            history.check(report=_folder_of(item) / "report.html")
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)  # our own frames say nothing to the user
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say where the traces of a failed test are, and how to run it again."""
    report = yield
    if any(name.startswith(_PREFIX) for name in getattr(item, "fixturenames", ())):
        if report.failed:
            item.stash[_FAILED] = True
            report.sections.append(("raftlog", "\n".join(_left_by(item))))
        elif report.when == "teardown" and not item.stash.get(_FAILED, False):
            folder = _folder_of(item)
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others have put something there
                folder.parent.rmdir()
    return report


def _left_by(item: pytest.Item) -> list[str]:
    folder = _folder_of(item)
    seed = item.config.stash[_RUN_SEED]
    lines = [f'run it again: pytest "{item.nodeid}" --raftlog-seed={seed}']
    history = item.stash.get(_HISTORY, None)
    if history is not None:
        report = folder / "report.html"
        if not report.exists():
            history.judge(report=report)
        lines += [f"history: {history.path}", f"report: {report}"]
    for each in getattr(item, "funcargs", {}).values():
        if isinstance(each, Cluster):
            lines += [f"broker: {copy}" for copy in _copied_output(each, folder)]
            if each.recordings is not None:
                kept = folder / "recordings"
                each.recordings.copy_to(kept)
                lines.append(f"replay: raftlog incident replay {kept}")
    return lines


def _copied_output(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """The brokers' output; the cluster removes its own when it stops."""
    try:
        outputs = sorted(cluster.directory.glob("broker*.log"))
    except LocalMisuse:
        return  # the test has stopped it
    folder.mkdir(parents=True, exist_ok=True)
    for output in outputs:
        if output.stat().st_size > 0:
            yield Path(shutil.copy(output, folder / output.name))


def _folder_of(item: pytest.Item) -> Path:
    chosen: str = item.config.getoption("--raftlog-failures")
    return item.config.rootpath / chosen / topic_name(item.nodeid)
