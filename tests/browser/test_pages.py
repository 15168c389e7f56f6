"""The pages beside the dashboard, as a browser shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fairlane.simulate.html_report import page as report_page
from tests.browser.conftest import SCREENSHOTS
from tests.browser.site import Site
from tests.browser.window import Scheme, Window
from tests.simulate.small import asking, job, plain, settings

SIZES: list[tuple[int, Scheme]] = [(1200, "light"), (1200, "dark"), (400, "light")]

DRAWN = "[...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect().height)"
LINES = "[...document.querySelectorAll('polyline')].map(each => getComputedStyle(each).stroke)"
ROWS = "[...document.querySelectorAll('table')].map(each => each.rows.length)"
WRAPPED = """[...document.querySelectorAll('td')].filter(
    each => each.getBoundingClientRect().height > 45).length"""


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_simulators_page_shows_pictures_and_tables(
    browser: Browser, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    jobs = [job(n, 3, user=f"u{n % 5}", rank=n % 2) for n in range(80)]
    reports = [
        (name, asking(settings(plain(limit)), *jobs).answer())
        for name, limit in (("as it is", 1), ("services.draw.limit=2", 2))
    ]
    written = tmp_path / "waits.html"
    written.write_text(report_page("Who would have waited how long", "80 jobs", reports))
    with Window(browser, SCREENSHOTS, width=width, scheme=scheme) as window:
        page = window.open(written.as_uri())
        assert window.requests == [written.as_uri()]
        assert all(height > 80 for height in page.evaluate(DRAWN))
        assert len(set(page.evaluate(LINES))) == 2
        assert page.evaluate(ROWS) == [3, 3]
        assert page.evaluate(WRAPPED) == 0
        window.fits()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_of_the_api_shows_every_operation(
    browser: Browser, site: Site, width: int, scheme: Scheme
) -> None:
    paths = site.api.get("/openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in paths.values())
    with Window(browser, SCREENSHOTS, width=width, scheme=scheme) as window:
        page = window.open(f"{site.url}/docs")
        expect(page.locator(".opblock")).to_have_count(operations)
        page.locator(".opblock-summary-control").first.click()
        expect(page.locator(".opblock-body .example").first).to_be_visible()
        expect(page.locator(".errors-wrapper")).to_have_count(0)
        expect(page.locator(".btn.authorize")).to_have_count(1)
        window.fits()
