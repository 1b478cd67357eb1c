"""recsys_lab: declarative experiments on training large recommendation models."""
