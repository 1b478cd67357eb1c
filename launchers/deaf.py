"""For the server of ranks: where a whole group of processes is told to end, it stays for its ranks, which write a checkpoint.

It ends with the launcher.
"""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
