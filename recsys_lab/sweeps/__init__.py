"""Sweeps: one job of many, search, the ablation table with its statistics, and what a sweep shows while it runs."""
