"""Measures this machine, and writes it down as a cluster and a software profile for simulations of `cluster=local`."""

from recsys_lab.calibrate.command import main

__all__ = ["main"]
