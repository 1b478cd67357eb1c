"""Executors: they build the distributed modules from a plan, and train. One executor file a sharder."""
