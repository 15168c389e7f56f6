"""The page: one file, nothing from elsewhere, a line for every answer."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from fairlane.simulate.html_report import page
from tests.simulate.small import asking, job, plain, settings

EMPTY = {"meta", "line"}


class Checked(HTMLParser):
    """What is open is closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def written() -> str:
    jobs = [job(n, 3, user=f"u{n % 5}", rank=n % 2) for n in range(80)]
    reports = [
        (name, asking(settings(plain(limit)), *jobs).answer())
        for name, limit in (("as it is", 1), ("<b>limit=2</b>", 2))
    ]
    return page("Waits & more", "80 jobs, seed 1", reports)


def test_the_page_is_whole_and_fetches_nothing() -> None:
    found = Checked()
    found.feed(written())
    assert found.open == []
    assert found.fetched == []
    assert "url(" not in written()
    assert "script" not in found.seen


def test_every_tier_has_a_picture_with_a_line_for_every_answer() -> None:
    found = Checked()
    found.feed(written())
    assert found.seen.count("svg") == 2
    assert found.seen.count("polyline") >= 4
    assert found.seen.count("table") == 2


def test_names_are_text_not_markup() -> None:
    assert "<b>" not in written()
    assert "&lt;b&gt;limit=2&lt;/b&gt;" in written()


def test_every_point_lies_inside_the_picture() -> None:
    points = re.findall(r'points="([^"]+)"', written())
    numbers = [tuple(map(float, each.split(","))) for line in points for each in line.split()]
    assert numbers
    assert all(72 <= x <= 720 and 0 <= y <= 180 for x, y in numbers)
