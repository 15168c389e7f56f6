"""`docs/llms.txt`: the pages of the site in the form that language models read (llmstxt.org)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import DOCS
from tests.docs.navigation import navigation

PAGE = DOCS / "llms.txt"
SUMMARY = """\
# Fairlane

> Fairlane is a priority job queue and gateway for scarce AI capacity, in Python. It decides which
> job runs next, and it never loses an accepted job.

Fairlane runs embedded (one process, SQLite) or as a cluster (PostgreSQL and Redis). Jobs are run by
services that Fairlane calls over HTTP, by workers that pull, or by a Celery fleet.
"""
FIRST_PARAGRAPH = re.compile(
    r"^# .*?\n+(?:<!--.*?-->\n+)*(?:!\[.*?\n+)*(.+?)(?:\n\n|\Z)", re.DOTALL
)
MARKS = re.compile(r"\[([^\]]*)\]\([^)]*\)|[*`]")


def llms_txt() -> str:
    """Every page of the navigation with its first sentence."""
    parts = [SUMMARY]
    for title, pages in navigation():
        lines = [
            f"- [{name}]({page.relative_to(DOCS).as_posix()}): {first_sentence(page)}"
            for name, page in pages
        ]
        parts.append(f"\n## {title}\n\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def llms_full_txt() -> str:
    """Every page of the navigation, one after the other."""
    return "\n\n".join(page.read_text("utf-8") for _, pages in navigation() for _, page in pages)


def first_sentence(page: Path) -> str:
    found = FIRST_PARAGRAPH.search(page.read_text("utf-8"))
    paragraph = " ".join(found[1].split()) if found else ""
    plain = MARKS.sub(lambda match: match[1] or "", paragraph)
    return re.split(r"(?<=[.:]) (?=[A-Z`])", plain, maxsplit=1)[0]
