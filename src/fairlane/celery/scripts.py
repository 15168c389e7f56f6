"""The Lua scripts of the lease store: one verb per file, with the shared functions before it."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class LeaseScript(NamedTuple):
    text: str
    digest: str


@cache
def script(verb: str) -> LeaseScript:
    folder = files("fairlane.celery") / "lua"
    text = "\n".join((folder / f"{name}.lua").read_text("utf-8") for name in ("include", verb))
    return LeaseScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
