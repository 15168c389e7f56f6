"""The navigation of the site, as `mkdocs.yml` lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.docs.blocks import DOCS
from tests.repo.checkout import ROOT

SETTINGS = ROOT / "mkdocs.yml"

Section = tuple[str, list[tuple[str, Path]]]
"""Its title, and its pages with their titles."""


class Loader(yaml.SafeLoader):
    """Skips `!!python/…`, which only the builder of the site needs."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation() -> list[Section]:
    """The sections in order. A page outside a section is a section of its own."""
    settings: dict[str, Any] = yaml.load(SETTINGS.read_text("utf-8"), Loader)  # noqa: S506 - safe
    found: list[Section] = []
    for entry in settings["nav"]:
        ((title, content),) = entry.items()
        inside = [content] if isinstance(content, str) else content
        pages = [each if isinstance(each, dict) else {title: each} for each in inside]
        listed = [(name, DOCS / path) for each in pages for name, path in each.items()]
        found.append((title, listed))
    return found
