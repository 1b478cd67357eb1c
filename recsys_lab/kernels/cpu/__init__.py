"""Choices that only make CPUs fast. Each is measured once on a machine, and a variable decides without a measurement."""
