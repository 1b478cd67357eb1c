"""A cluster's network on one machine. Every host is a network namespace behind a link of the rate that the cluster's YAML says."""

from launchers.emulated.launch import launch

__all__ = ["launch"]
