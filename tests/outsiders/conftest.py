"""Tests of `scripts/strangers` itself: no client of others, programs of a few lines."""

import sys

from tests.tidy.tree import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
