"""The pages as a whole: links, the navigation, and which blocks no test executes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import (
    DOCS,
    README,
    blocks,
    blocks_not_run,
    listing,
    name_of,
    pages,
)
from tests.docs.llms_txt import PAGE as LLMS_TXT
from tests.docs.llms_txt import llms_txt
from tests.docs.navigation import navigation
from tests.repo.checkout import ROOT, kept_files
from tests.repo.tables import CODE, anchors

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"^[a-z]+:")
LANGUAGES = {"python", "bash", "toml", "json", "text", "console"}
MAX_BLOCKS_NOT_RUN = 17
README_LINES = 135
LARGEST_PICTURE_BYTES = 150_000
DECISIONS = DOCS / "decisions"


def test_every_block_has_a_language_that_says_how_it_is_tested() -> None:
    unknown = [
        f"{name_of(page)}:{block.line}: {block.language!r}"
        for page in pages()
        for block in blocks(page)
        if block.language not in LANGUAGES
    ]
    assert not unknown, f"known: {sorted(LANGUAGES)}\n" + "\n".join(unknown)


def test_few_blocks_are_not_executed() -> None:
    found = blocks_not_run()
    assert len(found) <= MAX_BLOCKS_NOT_RUN, listing(found)
    assert all(block.language in {"python", "bash"} for _, block in found), listing(found)


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{name_of(page)}: {target}"
        for page in kept_files()
        if page.suffix == ".md"
        for target in LINK.findall(CODE.sub("", page.read_text("utf-8")))
        if not ELSEWHERE.match(target) and not leads_somewhere(page, target)
    ]
    assert not broken, "\n".join(broken)


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = page.parent / path if path else page
    if not found.exists():
        return False
    return not anchor or anchor in anchors(found)


def test_every_decision_is_listed() -> None:
    listed = set(LINK.findall((DECISIONS / "README.md").read_text("utf-8")))
    assert {page.name for page in DECISIONS.glob("[0-9]*.md")} <= listed


def test_every_page_is_in_the_navigation() -> None:
    listed = {page for _, section in navigation() for _, page in section}
    kept = {path for path in kept_files() if path.suffix == ".md" and path.is_relative_to(DOCS)}
    assert listed == {path for path in kept if not path.match("decisions/[0-9]*.md")}


def test_llms_txt_is_made_from_the_navigation() -> None:
    assert LLMS_TXT.read_text("utf-8") == llms_txt(), "run: python3 dev.py docs llms"


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= README_LINES


def test_every_picture_is_small_and_used() -> None:
    text = "".join(page.read_text("utf-8") for page in pages())
    for picture in kept_files():
        if picture.is_relative_to(DOCS / "pictures") and picture.suffix in {".png", ".svg"}:
            assert picture.stat().st_size <= LARGEST_PICTURE_BYTES, picture.relative_to(ROOT)
            assert f"pictures/{picture.name})" in text, picture.relative_to(ROOT)
