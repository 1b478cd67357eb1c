"""One file a subcommand of `python -m recsys_lab`: its arguments, a call of the room that does the work, what it prints.

A new command is a file here. Its first line, "`python -m recsys_lab NAME ...`: what it does", is its entry in the help.
"""
