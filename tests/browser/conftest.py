"""One browser for all tests, a context of its own for each. What a page complains about fails its
test; pictures are kept in the folder screenshots/."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.site import ADMIN_KEY, Site
from tests.browser.window import WAIT_MS, Window
from tests.repo.checkout import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
SCREENSHOTS = ROOT / "screenshots"

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    as_root = ("--no-sandbox",) if os.name == "posix" and os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *as_root])
        yield found
        found.close()


@pytest.fixture
def window(browser: Browser) -> Iterator[Window]:
    """A window 1200 pixels wide, in light colours."""
    with Window(browser, SCREENSHOTS) as opened:
        yield opened


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server in development mode, with a queue in every service. Its calls are held for good."""
    need_dashboard()
    with Site(tmp_path_factory.mktemp("site")) as found:
        found.play()
        yield found


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """A server of the test alone, with nothing in it."""
    need_dashboard()
    with Site(tmp_path / "site") as found:
        yield found


@pytest.fixture(scope="session")
def keyed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that asks for a key."""
    need_dashboard()
    with Site(tmp_path_factory.mktemp("keyed"), ADMIN_KEY) as found:
        yield found


def need_dashboard() -> None:
    if not (ROOT / "src" / "fairlane" / "dashboard" / "dist" / "index.html").exists():
        pytest.skip("the dashboard is not built; run: python3 dev.py setup")
