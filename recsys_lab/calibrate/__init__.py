"""Measures this machine, and writes it down as a cluster and a software profile for simulations of `cluster=local`."""
