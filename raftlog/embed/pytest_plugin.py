"""The pytest plugin. It starts no cluster until a test uses a fixture.

The wheel `pytest-raftlog` registers it with pytest. Without that wheel a conftest.py does, by
`pytest_plugins = ["raftlog.embed.pytest_plugin"]`. It is no entry point of raftlog itself, because
pytest would then rewrite every assertion of the product. No other module imports pytest.

A failed test leaves the history and report of `raftlog_history`, and the brokers' output, in a
folder of its own below `raftlog-failures/` (`--raftlog-failures DIR`). The test's output names the
folder. A test that passes leaves nothing.
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
    """Add the plugin's options."""
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
    """Draw the run's seed, unless it is given. Workers of pytest-xdist get the seed of the whole
    run."""
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
    """A cluster of three brokers in this process, shared by all tests of the run (of each worker,
    under pytest-xdist). A test that breaks brokers takes `raftlog_faults` or
    `raftlog_own_cluster`."""
    with _folder_for_recordings(pytestconfig) as record, Cluster(brokers=3, record=record) as found:
        yield found


@pytest.fixture
def raftlog_own_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of three brokers for this test alone, which may break it."""
    with _folder_for_recordings(pytestconfig) as record, Cluster(brokers=3, record=record) as found:
        yield found


@contextlib.contextmanager
def _folder_for_recordings(config: pytest.Config) -> Iterator[str | None]:
    """A folder that is removed with its cluster; None unless clusters are recorded."""
    if not config.getoption("--raftlog-record"):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="raftlog-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture
def raftlog_faults(request: pytest.FixtureRequest, raftlog_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, for a test that breaks it. After the test all faults end, paused brokers
    resume, and dead ones start. A failed test shows how often each fault was used."""
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
    """A seed for this test's random numbers, as in `random.Random(raftlog_seed)`. The same
    `--raftlog-seed` gives the same number again."""
    return seed_of(request.config.stash[_RUN_SEED], request.node.nodeid)


@pytest.fixture
def raftlog_history(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """A history for `raftlog.verify.record(client, raftlog_history)`. It is judged when the test
    has passed; a history that is not valid fails the test. Call
    `raftlog_history.read_back(servers)` last."""
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
    problem = _problem_of_history(item)
    if problem:
        # Not inside an `except`: pytest would show the error twice. The traceback has only the
        # plugin's frames, which do not help the user.
        pytest.fail(problem, pytrace=False)
    return result


def _problem_of_history(item: pytest.Item) -> str:
    """The judge's objection to the test's history; empty when the history is valid."""
    history = item.stash.get(_HISTORY, None)
    if history is not None:
        try:
            history.check(report=_folder_of(item) / "report.html")
        except AssertionError as error:
            return str(error)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test's report where its files are and how to run it again."""
    report = yield
    if any(name.startswith(_PREFIX) for name in getattr(item, "fixturenames", ())):
        if report.failed:
            item.stash[_FAILED] = True
            report.sections.append(("raftlog", "\n".join(_left_by(item))))
        elif report.when == "teardown" and not item.stash.get(_FAILED, False):
            folder = _folder_of(item)
            shutil.rmtree(folder, ignore_errors=True)
            # the folder is not empty: others have put files there
            with contextlib.suppress(OSError):
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
    for each, place in _places_of_clusters(item, folder):
        lines += [f"broker: {copy}" for copy in _copied_output(each, place)]
        if each.recordings is not None:
            kept = place / "recordings"
            each.recordings.copy_to(kept)
            lines.append(f"replay: raftlog incident replay {kept}")
    return lines


def _places_of_clusters(item: pytest.Item, folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """The test's clusters, each once, and where its files go. Several clusters have files of the
    same names, so each has a folder with the name of its fixture."""
    found: dict[Cluster, str] = {}
    for name, each in getattr(item, "funcargs", {}).items():
        if isinstance(each, Cluster):
            found.setdefault(each, name)
    for each, name in found.items():
        yield each, folder if len(found) == 1 else folder / name


def _copied_output(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Copies of the brokers' output. The cluster removes its own files when it stops."""
    try:
        outputs = sorted(cluster.directory.glob("broker*.log"))
    except LocalMisuse:
        return  # the test itself stopped the cluster
    folder.mkdir(parents=True, exist_ok=True)
    for output in outputs:
        if output.stat().st_size > 0:
            yield Path(shutil.copy(output, folder / output.name))


def _folder_of(item: pytest.Item) -> Path:
    chosen: str = item.config.getoption("--raftlog-failures")
    return item.config.rootpath / chosen / topic_name(item.nodeid)
