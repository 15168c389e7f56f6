"""The pages as a browser shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.simulate.html_report import page
from tests.api.server import gateway
from tests.browser.chromium import Tab
from tests.simulate.small import asking, job, plain, settings
from tests.world import World, catalog

SIZES = [(1200, "light"), (1200, "dark"), (400, "light")]

TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK = "getComputedStyle(document.body).color"
BACK = "getComputedStyle(document.body).backgroundColor"
DRAWN = "[...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect().height)"
LINES = "[...document.querySelectorAll('polyline')].map(each => getComputedStyle(each).stroke)"
ROWS = "[...document.querySelectorAll('table')].map(each => each.rows.length)"
WRAPPED = """[...document.querySelectorAll('td')].filter(
    each => each.getBoundingClientRect().height > 45).length"""


@pytest.mark.parametrize(("width", "scheme"), SIZES)
async def test_the_simulators_page_shows_pictures_and_tables(
    browser: Tab, tmp_path: Path, width: int, scheme: str
) -> None:
    jobs = [job(n, 3, user=f"u{n % 5}", rank=n % 2) for n in range(80)]
    reports = [
        (name, asking(settings(plain(limit)), *jobs).answer())
        for name, limit in (("as it is", 1), ("services.draw.limit=2", 2))
    ]
    written = tmp_path / "waits.html"
    written.write_text(page("Who would have waited how long", "80 jobs", reports))
    await browser.open(written.as_uri(), width=width, scheme=scheme)
    assert browser.complaints == []
    assert browser.requests == [written.as_uri()]
    assert all(height > 80 for height in await browser.value(DRAWN))
    assert len(set(await browser.value(LINES))) == 2
    assert await browser.value(ROWS) == [3, 3]
    assert await browser.value(TOO_WIDE) == 0
    assert await browser.value(WRAPPED) == 0
    await is_readable(browser, scheme)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
async def test_the_page_of_the_api_shows_every_operation(
    browser: Tab, tmp_path: Path, width: int, scheme: str
) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world, gateway(world.engine) as served:
        await browser.open(f"{served.url}/docs", width=width, scheme=scheme)
        async with served.client() as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
        operations = sum(len(methods) for methods in paths.values())
        assert await browser.value(until("document.querySelectorAll('.opblock')", operations))
        await browser.value("document.querySelector('.opblock-summary-control').click()")
        assert await browser.value(until("document.querySelectorAll('.opblock-body .example')", 1))
        assert await browser.value("document.querySelectorAll('.errors-wrapper').length") == 0
        assert await browser.value("document.querySelectorAll('.btn.authorize').length") == 1
        assert browser.complaints == []
        own = (served.url, "data:")
        assert all(each.startswith(own) for each in browser.requests)
        assert await browser.value(TOO_WIDE) == 0
        await is_readable(browser, scheme)


def until(found: str, count: int) -> str:
    """A promise of the page, kept when so many are there (or more)."""
    return f"""new Promise(done => {{
        const look = () => {found}.length >= {count} ? done(true) : requestAnimationFrame(look);
        look();
    }})"""


async def is_readable(browser: Tab, scheme: str) -> None:
    """Light on dark or dark on light, as was asked for."""
    ink, back = [brightness(await browser.value(each)) for each in (INK, BACK)]
    assert (ink > back) is (scheme == "dark")
    assert abs(ink - back) > 150


def brightness(colour: str) -> float:
    """Of "rgb(27, 36, 48)"; a page without a colour is white."""
    parts = [float(each) for each in colour.partition("(")[2].rstrip(")").split(",")]
    if len(parts) == 4 and parts[3] == 0:
        return 255
    return sum(parts[:3]) / 3
