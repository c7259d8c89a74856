"""A sweep that was told to end went on, since the exception had struck in a finalizer."""

import signal

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import sweep
from raftlog_sim.hunting import interrupts


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_finalizer_ends_a_sweep(monkeypatch, capsys):
    played, play = [], sweep.run_seed

    def signalled(seed, *more):
        played.append(seed)
        Finalized()
        return play(seed, *more)

    monkeypatch.setattr(sweep, "run_seed", signalled)
    options = ["--jobs", "1", "--profile", "calm", "--no-folders", "--check-every", "0"]
    assert main(["sweep", "--seeds", "1..100", *options]) == 130
    assert played == [1]
    assert "interrupted: this is what was done so far" in capsys.readouterr().out


def test_the_next_command_hears_nothing_of_it():
    with pytest.raises(KeyboardInterrupt), interrupts.heard():
        signal.raise_signal(signal.SIGINT)
    interrupts.raise_a_lost_one()


def test_outside_the_block_the_signals_are_as_they_were():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with interrupts.heard():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
