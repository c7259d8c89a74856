"""A sweep that was told to end went on, since the exception had struck in a finalizer."""

import signal

import pytest
from raftlog_sim.hunting import interrupts
from raftlog_sim.hunting.workers import SeedWorkers


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def nothing() -> None:
    return


def same(number: int) -> int:
    return number


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_finalizer_interrupts_the_workers():
    workers = SeedWorkers(1, same, nothing, lambda: True)
    answers = workers.answers((number,) for number in range(1_000_000))
    with interrupts.heard():
        next(answers)
        Finalized()
        with pytest.raises(KeyboardInterrupt):
            for _ in answers:
                pass


def test_the_next_command_hears_nothing_of_it():
    with pytest.raises(KeyboardInterrupt), interrupts.heard():
        signal.raise_signal(signal.SIGINT)
    interrupts.raise_a_lost_one()


def test_outside_the_block_the_signals_are_as_they_were():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with interrupts.heard():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
