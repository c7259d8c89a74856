"""Makes the case of a seed, for any subject and profile."""

from raftlog.base.errors import OperatingError
from raftlog_sim.playing.cases import (
    BROKERS,
    PROFILES_OF,
    PYSYNCOBJ,
    BrokerCase,
    Case,
    GuestCase,
    guest_tools,
)
from raftlog_sim.playing.variations import vary
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import VARIED, draw_options


def drawn(seed: int, profile: str, subject: str = BROKERS) -> Case:
    """Returns the case of a seed. Refuses a profile of another subject.

    Such a profile would only be a name for other random numbers.
    """
    known = PROFILES_OF[subject]
    if profile not in known:
        what = f"{profile} is no profile of {subject}"
        raise OperatingError(what, on="profile", do=f"one of {', '.join(known)}")
    if subject == PYSYNCOBJ:
        return GuestCase(plan=guest_tools().draw_plan(seed, profile))
    if profile == VARIED:
        return BrokerCase(schedule=vary(seed))
    return BrokerCase(schedule=draw_schedule(draw_options(seed, profile)))
