"""Logs: one line of JSON an event. What callers sent is not in them."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import IO

import orjson

from fairlane.api.times import iso

KEPT = ("request_id", "method", "path", "status", "milliseconds", "key")


class JsonLines(logging.Formatter):
    """JSON escapes what could begin a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": iso(round(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in KEPT if hasattr(record, name)},
        }
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__
            line["where"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(trace)
            ]
        return orjson.dumps(line, default=str).decode()


def log_to(stream: IO[str] = sys.stderr, level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("fairlane").setLevel(level)
