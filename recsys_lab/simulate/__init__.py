"""Prices the steps of an iteration on a named cluster. What it gives is simulated, and says so."""

from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.simulated import InRun, Simulated, Timeline, simulate
from recsys_lab.simulate.trace import trace_json, write_trace

__all__ = ["InRun", "Profile", "Simulated", "Timeline", "simulate", "trace_json", "write_trace"]
