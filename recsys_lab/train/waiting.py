"""Signals that end a rank while it waits for others in C++, where Python runs no handler before the wait is over."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
#: How long the wait may take to come back to Python, whose handlers then end the rank in order.
HANDLER_S = 5.0


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Within it SIGTERM, SIGHUP and Ctrl-C end this process after `HANDLER_S` at most, with their exit codes.

    Signals without a handler of Python's do what they did. So do all in threads other than the first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(reader, over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        writer.close()
        watch.join()
        reader.close()


def _watch(received: socket.socket, over: threading.Event) -> None:
    """Python writes the number of each signal as it arrives."""
    while number := received.recv(1):
        if number[0] in ENDING and not over.wait(HANDLER_S):
            name = signal.Signals(number[0]).name
            print(f"ended by {name}: rank {os.environ.get('RANK')} waited for the others", file=sys.stderr, flush=True)
            os._exit(128 + number[0])
