"""Configuration: what a command line means, checked and frozen before anything starts."""
