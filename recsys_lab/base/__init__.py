"""Paths, whole files, standard streams, the environment and what options can be: what every room may use."""
