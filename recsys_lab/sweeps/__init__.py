"""Sweeps: jobs, search, the ablation table with its statistics, and what a sweep shows while it runs.

`job`, `folder`, `search`: a job of a sweep. In which folder it runs. Trials that Optuna proposes.
`rows`, `figures`, `baseline`: jobs folded by configuration. What is compared, and with which row.
`statistics`, `comparisons`: exact tests. Every row against its baseline.
`table`, `ablation`: the ablation table read from a sweep's folder. Written in every format.
`cells`, `text`, `latex`, `page`, `plots`, `seeds_plot`: the formats.
`live`: a table at the foot of the terminal while the sweep runs.
"""
