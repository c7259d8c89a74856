"""Plays some seeds with the code that PYTHONPATH names first: the paths that most seeds take."""

from raftlog_sim.playing.cases import BROKERS
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.schedules.options import draw_options

PROFILE = "swarm"
SEEDS = range(1001, 1016)

if __name__ == "__main__":
    for seed in SEEDS:
        if not draw_options(seed, PROFILE).trio:
            drawn(seed, PROFILE, BROKERS).play()
