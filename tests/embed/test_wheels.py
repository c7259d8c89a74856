"""The two wheels are of one version; scripts/wheels tries them in empty environments."""

from scripts import _wheels


def test_both_wheels_are_of_one_version():
    version, asked = _wheels.version_of(_wheels.ROOT)
    assert asked == []
    assert _wheels.version_of(_wheels.SECOND) == (version, [f"raftlog=={version}"])


def test_the_interpreters_that_are_there_are_found_once_each():
    found = _wheels.found_pythons()
    names = [python.rpartition("/")[2] for python in found]
    assert names == [name for name in _wheels.NAMES if name in names]
    assert len(names) >= 1
