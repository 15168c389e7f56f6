"""Builds the documentation site and follows every link in it.

The pages are copied to a folder of the build first, together with the files of the checkout that
they link to, which the site holds below `files/`. The builder is Zensical; `mkdocs.yml` is plain
enough for mkdocs-material (`--builder mkdocs`), which gets an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.docs.llms_txt import llms_full_txt
from tests.docs.navigation import SETTINGS
from tests.repo.checkout import ROOT

STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
OTHER_BUILDER = ROOT / ".cache" / "mkdocs"
OTHER_PACKAGES = ("mkdocs==1.6.1", "mkdocs-material==9.7.0")
LINK = re.compile(r"(\[[^\]]*\](?:\(|: ))((?:\.\./)+[^)\s#]+)")
LINK_OF_FILES = re.compile(r"(\[[^\]]*\]\()([^)\s#:]+)(?=[)#])")
HOSTS_OF_OTHERS = re.compile(
    r"https://(?:unpkg\.com|cdn\.jsdelivr\.net|cdnjs\.cloudflare\.com|fonts\.g\w+\.com)/"
)
"""The builder's script names these for features that no page uses (diagrams, a code editor)."""

NOWHERE = "/not-in-this-site/"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class SiteError(Exception):
    """The site cannot be built, or a link in it leads nowhere."""


def build(builder: str = "zensical") -> int:
    """Builds the site into `build/site`. Returns the number of links that were followed."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    if builder == "mkdocs":
        command = [other_builder(), "build", "--quiet", "--strict"]
    ran = subprocess.run(
        command, cwd=STAGE, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    if ran.returncode != 0:
        raise SiteError(ran.stdout + ran.stderr)
    (STAGE / "build" / "site").rename(SITE)
    remove_hosts_of_others()
    add_plain_pages()
    return follow_links()


def other_builder() -> str:
    program = OTHER_BUILDER / "bin" / "mkdocs"
    if not program.exists():
        venv.create(OTHER_BUILDER, clear=True, with_pip=True)
        pip = [str(OTHER_BUILDER / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *OTHER_PACKAGES], check=True)
    return str(program)


# ── the pages to build from ───────────────────────────────────────────────────────────────────


def stage() -> None:
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    shutil.copy2(SETTINGS, STAGE)
    shutil.copytree(ROOT / "docs", STAGE / "docs")
    waiting = sorted((STAGE / "docs").rglob("*.md"))
    while waiting:
        waiting += bring_linked_files(waiting.pop())


def bring_linked_files(page: Path) -> list[Path]:
    """Copies what the page links to outside of `docs/`, and changes the links. Returns the pages
    among the copies: they may have links, too."""
    inside = page.relative_to(STAGE / "docs")
    in_files = inside.parts[0] == "files"
    original = ROOT / inside.relative_to("files") if in_files else ROOT / "docs" / inside
    brought = []

    def rewrite(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(original.parent / match[2]))
        if target.is_relative_to(ROOT / "docs"):
            copy = STAGE / "docs" / target.relative_to(ROOT / "docs")
        else:
            copy = STAGE / "docs" / "files" / target.relative_to(ROOT)
            if target.is_dir():
                raise SiteError(f"{inside}: a link to a folder has no page: {match[2]}")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(target, copy)
                brought.extend([copy] if copy.suffix == ".md" else [])
        return match[1] + os.path.relpath(copy, page.parent)

    pattern = LINK_OF_FILES if in_files else LINK
    page.write_text(pattern.sub(rewrite, page.read_text("utf-8")), "utf-8")
    return brought


# ── what the builder made ─────────────────────────────────────────────────────────────────────


def remove_hosts_of_others() -> None:
    for path in SITE.rglob("*"):
        if path.suffix in {".js", ".css", ".html"}:
            text = path.read_text("utf-8")
            if HOSTS_OF_OTHERS.search(text):
                path.write_text(HOSTS_OF_OTHERS.sub(NOWHERE, text), "utf-8")


def add_plain_pages() -> None:
    """Every page also as Markdown, and all of them in one file, for programs that read them."""
    for page in (STAGE / "docs").rglob("*.md"):
        copy = SITE / page.relative_to(STAGE / "docs")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, copy)
    (SITE / "llms-full.txt").write_text(llms_full_txt(), "utf-8")


class Links(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loads.append(given[LOADED[tag]])


def follow_links() -> int:
    """Raises SiteError with every link that leads nowhere, and everything that a page loads from
    another host."""
    pages = {path: Links(path.read_text("utf-8")) for path in SITE.rglob("*.html")}
    wrong = [
        f"{page.relative_to(SITE)}: {problem}"
        for page, found in sorted(pages.items())
        for problem in problems(page, found, pages)
    ]
    wrong += [
        f"{path.relative_to(SITE)}: names another host"
        for path in SITE.rglob("*")
        if path.suffix in {".js", ".css"} and HOSTS_OF_OTHERS.search(path.read_text("utf-8"))
    ]
    if wrong:
        raise SiteError("\n".join(wrong))
    return sum(len(each.links) for each in pages.values())


def problems(page: Path, found: Links, pages: dict[Path, Links]) -> Iterator[str]:
    for address in found.loads:
        if urlsplit(address).netloc:
            yield f"loads {address} from another host"
    for address in (*found.links, *found.loads):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        if page.name == "404.html" and address.startswith("/"):
            target = SITE / unquote(parts.path).lstrip("/")
        else:
            target = Path(os.path.normpath(page.parent / unquote(parts.path)))
        target = page if not parts.path else target
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield f"{address} leads nowhere"
        elif parts.fragment and target in pages and not anchored(parts.fragment, pages[target]):
            yield f"{address}: no such part of the page"


def anchored(fragment: str, page: Links) -> bool:
    return unquote(fragment) in page.anchors or fragment.startswith("__")
