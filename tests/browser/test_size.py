"""The dashboard is small, and paints at once."""

from __future__ import annotations

import gzip

from playwright.sync_api import expect

from tests.browser.conftest import need_dashboard
from tests.browser.site import Site
from tests.browser.window import Window
from tests.repo.checkout import ROOT

MAX_GZIPPED_BYTES = 60_000
DIST = ROOT / "src" / "fairlane" / "dashboard" / "dist"


def test_all_files_together_are_small() -> None:
    need_dashboard()
    files = [path for path in DIST.rglob("*") if path.is_file() and path.name != ".sources"]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    assert size <= MAX_GZIPPED_BYTES


def test_the_page_asks_for_four_files(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    own = [url.removeprefix(site.url) for url in window.requests if url.startswith("http")]
    kinds = sorted(url.rpartition(".")[2] for url in own if url.startswith("/assets/"))
    assert kinds[:2] == ["css", "js"]
    assert len(own) <= 5
    expect(page.get_by_role("region", name="Overview")).to_be_visible()
