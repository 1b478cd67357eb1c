"""For the server of ranks. Where a whole group of processes must end, it stays for its ranks, which write a checkpoint.

It ends with the launcher.
"""

import signal

signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
