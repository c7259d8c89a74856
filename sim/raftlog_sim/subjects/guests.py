"""What the tools need of guests, in one place: importing this needs the library."""

from raftlog_sim.subjects.guest_plan import draw_plan, parse
from raftlog_sim.subjects.guest_run import play
from raftlog_sim.subjects.guest_shrink import shrink

__all__ = ["draw_plan", "parse", "play", "shrink"]
