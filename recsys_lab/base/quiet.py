"""Keeps TorchRec's notes to itself out of our output, by module: what others warn about is still heard."""

from __future__ import annotations

import logging
import warnings

LOGGERS = ("torchrec", "fbgemm_gpu", "torch.fx._symbolic_trace", "torch.distributed._shard")
#: TorchRec calls parts of torch that are deprecated.
WARNED_MODULES = r"(torchrec|fbgemm_gpu|torch\.distributed|torch\.jit)(\..*)?"


def quiet_torchrec() -> None:
    """Drops log records below ERROR and warnings that come from TorchRec and FBGEMM. May be called again."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    root = logging.getLogger()
    if _not_torchrec not in root.filters:
        root.addFilter(_not_torchrec)  # some of its modules log to the root logger
    for category in (FutureWarning, DeprecationWarning, UserWarning):
        warnings.filterwarnings("ignore", category=category, module=WARNED_MODULES)


def _not_torchrec(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or "torchrec" not in record.pathname.replace("\\", "/").split("/")
