"""Collects all that the tools need of guests; importing this module needs the library."""

from raftlog_sim.subjects.guest_plan import draw_plan, parse
from raftlog_sim.subjects.guest_run import play
from raftlog_sim.subjects.guest_shrink import shrink

__all__ = ["draw_plan", "parse", "play", "shrink"]
