"""The report: one self-contained HTML page about a verdict, and JUnit XML for build servers."""

from raftlog.verify.report.page import render

__all__ = ["render"]
