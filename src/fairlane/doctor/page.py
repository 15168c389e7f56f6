"""The page of the checks: one section each. `docs/checks.md` and `/docs/checks` are made of it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from fairlane.doctor.checks import EVERY
from fairlane.doctor.findings import Check

INTRODUCTION = """\
`fairlane doctor` looks at a running system, and `fairlane doctor --pre` at its surroundings before
`fairlane serve`. It is read-only. Every finding names a section of this page.

| mark | verdict | meaning | exit code |
|---|---|---|---|
| ✓ | ok | as it should be | 0 |
| ! | warning | worth knowing; nothing is broken | 0 |
| ? | unknown | the check could not look, which is not fine | 2 |
| ✗ | wrong | a promise is broken, or jobs cannot run | 1 |

"""

JOB_SECTION = """\
**What it means.** `fairlane doctor JOB` gives the reasons why one job does not run, in the words of
`fairlane jobs explain JOB`, and adds what is wrong with its service. Jobs ahead of it, busy slots
and a coming promotion are the normal life of a queue.

**How to confirm.** `fairlane jobs explain JOB` also says what would help.

**What to do.** Follow the command of the first finding that is not ok."""


def markdown() -> str:
    """The whole page in Markdown."""
    parts = [f"# Checks of the doctor\n\n{INTRODUCTION}"]
    parts += [f"## {check.name}\n\n{_section(check)}\n\n" for check in sections()]
    parts.append(f"## job\n\n{JOB_SECTION}\n")
    return "".join(parts)


def sections() -> Iterator[Check]:
    """Every check once, by name."""
    yield from sorted({check.name: check for check in EVERY}.values(), key=lambda each: each.name)


def _section(check: Check) -> str:
    return (
        f"**What it means.** {check.means}\n\n"
        f"**How to confirm.** {check.confirm}\n\n"
        f"**What to do.** {check.remedy}"
    )


STYLE = b"""
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
  color-scheme: light dark }
code { font-size: 0.9em; overflow-wrap: anywhere }
h2 { margin-top: 2.5rem }
:target { outline: 2px solid; outline-offset: 0.4rem }
nav a { margin-right: 0.8rem; white-space: nowrap }
"""


def as_html() -> str:
    """The whole page in HTML, without scripts."""
    checks = list(sections())
    links = "".join(f'<a href="#{each.name}">{each.name}</a> ' for each in checks)
    body = "".join(_html_section(each.name, _section(each)) for each in checks)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Checks of the doctor</title>"
        '<link rel="stylesheet" href="checks.css"></head><body>'
        f"<h1>Checks of the doctor</h1><nav>{links}</nav>{body}{_html_section('job', JOB_SECTION)}"
        "</body></html>"
    )


def _html_section(name: str, text: str) -> str:
    paragraphs = "".join(f"<p>{_inline(each)}</p>" for each in text.split("\n\n"))
    return f'<h2 id="{name}">{name}</h2>{paragraphs}'


LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
CODE = re.compile(r"`([^`]+)`")
STRONG = re.compile(r"\*\*([^*]+)\*\*")


def _inline(text: str) -> str:
    """Markdown of the sections as HTML. Only links within the page lead anywhere here."""
    text = STRONG.sub(r"<strong>\1</strong>", html.escape(text, quote=False))
    text = CODE.sub(r"<code>\1</code>", text)
    return LINK.sub(
        lambda found: (
            f'<a href="{found[2]}">{found[1]}</a>' if found[2].startswith("#") else found[1]
        ),
        text,
    )
