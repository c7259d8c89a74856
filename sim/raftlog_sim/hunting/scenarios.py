"""Plays named scenarios (`scenario_files`) and each of their mutants; returns their results."""

import io
import multiprocessing
from typing import Final, NamedTuple

from raftlog.verify import check_history
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.hunting import mutation
from raftlog_sim.playing.cases import PYSYNCOBJ
from raftlog_sim.playing.scenario_files import RESULT, Scenario, of_mutant, read

OK: Final = "ok"
_SURVIVES: Final = "SURVIVES"
_PASSES: Final = "passes"
"""The result of a mutant that passed a rare path that the scenario avoids, and did not fail."""


class Played(NamedTuple):
    """The plain run of a scenario: the result lines for its file, and the whole outcome."""

    lines: list[str]
    outcome: Outcome

    @property
    def probes(self) -> dict[str, int]:
        """The probes that the run passed."""
        return self.outcome.probes

    @property
    def struck_nothing(self) -> list[str]:
        """Steps that did nothing; a guest's plan does not tell."""
        return list(self.outcome.document.get("struck_nothing", ()))


def play(scenario: Scenario) -> Played:
    """Run a scenario as it is, without planted bugs."""
    outcome = scenario.case.play(trace=True)
    return Played(lines_of(scenario, outcome), outcome)


def lines_of(scenario: Scenario, outcome: Outcome) -> list[str]:
    """Returns the result lines of a run, as the scenario's file has them."""
    found = _of_guests(outcome) if scenario.subject == PYSYNCOBJ else _of_brokers(outcome)
    missed = [name for name in scenario.reaches if name not in outcome.probes]
    if missed:
        found.append(f"{RESULT} NOT REACHED: {', '.join(missed)}")
    passed = _passed(scenario, outcome)
    if passed:
        found.append(f"{RESULT} NOT AVOIDED: {', '.join(passed)}")
    return found


def differences(scenario: Scenario, outcome: Outcome) -> list[str]:
    """Returns the lines in which a run differs from what its file expects; none when it is as
    expected.

    A user's own file need not have every line. Each line that it has must come. No further line may
    say that the run failed, or did not test what it should.
    """
    return differing(scenario.expected_plain, lines_of(scenario, outcome))


def differing(expected: list[str], found: list[str]) -> list[str]:
    """Returns the differing lines; an empty `expected` counts as `ok`."""
    lacking = [f"expected  {line}" for line in expected if line not in found]
    beyond = [line for line in found if line not in expected and not _is_calm(line)]
    if lacking:
        beyond = [line for line in found if line not in expected]
    return [*lacking, *(f"now       {line}" for line in beyond)]


def _is_calm(line: str) -> bool:
    """Whether a line that was not expected tells of no failure."""
    if of_mutant(line):
        return not (line.endswith(_SURVIVES) or f": {_PASSES} " in line)
    heads = ("struck: ", "violated: ", "the judge")
    return line == f"{RESULT} {OK}" or line.startswith(tuple(f"{RESULT} {each}" for each in heads))


def _passed(scenario: Scenario, outcome: Outcome) -> list[str]:
    return [name for name in scenario.avoids if name in outcome.probes]


def results(scenario: Scenario, *, mutants: bool = True) -> list[str]:
    """Returns the lines with which its file should end; without `mutants` only those of the plain
    run."""
    return play(scenario).lines + (mutant_results(scenario) if mutants else [])


def _of_brokers(outcome: Outcome) -> list[str]:
    struck = ", ".join(f"{kind} {count}" for kind, count in outcome.document["faults"].items())
    return [
        f"{RESULT} {outcome.signature or OK}".rstrip(),
        f"{RESULT} struck: {struck or 'nothing'}",
    ]


def _of_guests(outcome: Outcome) -> list[str]:
    document = outcome.document
    violated = sorted(dict.fromkeys(text.partition(":")[0] for text in document["violated"]))
    verdict = check_history(io.StringIO(outcome.history))
    judged = [result.name for result in verdict.failures()]
    return [
        f"{RESULT} {outcome.failure or OK}",
        f"{RESULT} violated: {', '.join(violated) or 'nothing'}",
        f"{RESULT} the judge of histories: {', '.join(judged) or verdict.verdict}",
    ]


def mutant_results(scenario: Scenario) -> list[str]:
    """Returns a line for each planted bug, each tried in a process of its own."""
    context = multiprocessing.get_context("spawn")
    found = []
    for number in scenario.mutants:
        with context.Pool(1) as pool:
            told = pool.apply(_with_mutant, (scenario.name, "\n".join(scenario.lines), number))
        found.append(f"{RESULT} mutant {number}: {told}")
    return found


def _with_mutant(name: str, text: str, number: str) -> str:
    mutation.switch_on(number)
    scenario = read(name, text)
    outcome = scenario.case.play()
    passed = _passed(scenario, outcome)
    told = f"{_PASSES} {', '.join(passed)}" if passed else _SURVIVES
    return outcome.failure_class or told
