"""The tables and headings of a page, as a reader sees them."""

import re
from pathlib import Path

from tests.repo.checkout import ROOT

DOCS = ROOT / "docs"
HEADING = re.compile(r"^(#+) +(.*?) *$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
BETWEEN_CELLS = re.compile(r"(?<!\\)\|")

Row = dict[str, str]


def table(page: Path, heading: str) -> list[Row]:
    """The rows of the first table under a heading, by column, without the marks of code."""
    lines = iter(section(page, heading).splitlines())
    columns = next(cells(line) for line in lines if line.startswith("|"))
    next(lines)  # the line of dashes
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        assert len(cells(line)) == len(columns), f"{page.name}: {line}"
        rows.append(dict(zip(columns, cells(line), strict=True)))
    return rows


def section(page: Path, heading: str) -> str:
    """What stands between a heading and the next."""
    text = page.read_text("utf-8")
    for match in HEADING.finditer(text):
        if match[2] == heading:
            following = HEADING.search(text, match.end())
            return text[match.end() : following.start() if following else None]
    raise AssertionError(f'{page.name} has no heading "{heading}"')


def cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in BETWEEN_CELLS.split(line.strip())[1:-1]]


def anchors(page: Path) -> set[str]:
    """What a link to a part of the page may name."""
    headings = HEADING.findall(CODE.sub("", page.read_text("utf-8")))
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for _, title in headings]
    return {title.replace(" ", "-") for title in kept}
