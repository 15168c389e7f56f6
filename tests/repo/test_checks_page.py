"""`docs/checks.md` has a section for every check of the doctor, and names only real commands."""

from __future__ import annotations

import re
import shlex
import sys

from fairlane.doctor.checks import EVERY
from fairlane.doctor.page import as_html, markdown
from tests.doctor.patient import demand_command
from tests.repo.tables import DOCS, anchors

PAGE = DOCS / "checks.md"
COMMAND = re.compile(r"`(fairlane [^`]+)`")
PLACEHOLDERS = {"N": "1", "FILE": "bundle.zip"}


def test_the_page_is_made_from_the_checks() -> None:
    assert PAGE.read_text("utf-8") == markdown(), (
        "run: .venv/bin/python -m tests.repo.test_checks_page"
    )


def test_every_check_has_a_section_in_the_page() -> None:
    names = {check.name for check in EVERY}
    assert len(names) == len({id(check) for check in EVERY})
    assert names <= anchors(PAGE)
    assert all(f'<h2 id="{name}">' in as_html() for name in names)


def test_every_command_in_the_page_exists() -> None:
    found = set(COMMAND.findall(markdown()))
    assert len(found) > 20
    for command in sorted(found):
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
        demand_command(shlex.join(words))


def test_every_link_within_the_page_leads_to_a_section() -> None:
    targets = set(re.findall(r"\]\(#([^)]+)\)", markdown()))
    assert targets <= anchors(PAGE)


if __name__ == "__main__":
    PAGE.write_text(markdown(), "utf-8")
    sys.exit()
