"""Commands set up the log of their process; in a test that is everybody's."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("", "uvicorn", "alembic", "gateway.audit")


@contextmanager
def restored_logging() -> Iterator[None]:
    """Put back afterwards what `configure_logging` changes."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, (level, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.handlers[:] = handlers
