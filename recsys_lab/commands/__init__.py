"""One file a subcommand of `python -m recsys_lab`."""
