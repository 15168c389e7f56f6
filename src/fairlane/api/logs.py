"""Structured logs: one line per event, as JSON or, on a terminal, as text. Request bodies are not
logged."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import deque
from collections.abc import Mapping
from typing import IO, Any

import orjson

from fairlane.api.schemas.timestamps import iso
from fairlane.config.settings import LogFormat, LogLevel

KEPT = ("request_id", "method", "path", "status", "milliseconds", "key")


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Returns the fields of a line: `extra={"fields": {…}}`, the request's fields and the error."""
    found = {name: getattr(record, name) for name in KEPT if hasattr(record, name)}
    found.update(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[0] is not None:
        kind, _, trace = record.exc_info
        found["error"] = kind.__name__
        found["where"] = [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)
        ]
    return found


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON. JSON escapes line breaks, which prevents log
    injection."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": iso(round(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        return orjson.dumps(line, default=str).decode()


class TextLines(logging.Formatter):
    """Formats a record for a terminal: time, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = iso(round(record.created * 1_000_000))[11:19]
        fields = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        line = f"{at} {record.levelname.lower():<7} {record.getMessage()}  {fields}".rstrip()
        if line.isprintable():
            return line
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


RECENT_LINES = 1_000


class RecentLines(logging.Handler):
    """Keeps the last lines in memory, for the support bundle."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=RECENT_LINES)
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


_recent = RecentLines()


def recent_lines() -> list[str]:
    """The last lines of the log, oldest first. Empty if `log_to` was not called."""
    return list(_recent.lines)


def log_to(
    stream: IO[str] | None = None, level: LogLevel = "info", form: LogFormat = "auto"
) -> None:
    """Configures the root logger, and replaces its handlers."""
    stream = stream or sys.stderr
    is_text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLines() if is_text else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler, _recent]
    root.setLevel(logging.WARNING)
    logging.getLogger("fairlane").setLevel(level.upper())
