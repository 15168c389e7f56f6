"""Every view of the dashboard, wide and narrow, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from websockets.sync.client import connect

from tests.browser.conftest import SCREENSHOTS, need_dashboard
from tests.browser.contrast import low_contrast
from tests.browser.site import Site
from tests.browser.window import Scheme, Window

SIZES: list[tuple[int, Scheme]] = [
    (1200, "light"),
    (1200, "dark"),
    (400, "light"),
    (400, "dark"),
]
SERVICES = ("prompt_enhancer", "fast_chat_llm", "image_gen", "model_3d_gen")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server of this file alone: no other test has changed its queue."""
    need_dashboard()
    with Site(tmp_path_factory.mktemp("views")) as found:
        found.play()
        yield found


def show_now(page: Page, site: Site) -> None:
    page.goto(site.url)
    for name in SERVICES:
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    image_gen = page.get_by_role("region", name="image_gen", exact=True)
    expect(image_gen.get_by_role("listitem").first).to_contain_text("best tier waiting")
    expect(page.get_by_text("10 of 14")).to_be_visible()


def show_service(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/s/image_gen")
    expect(page.get_by_role("list", name="Next for image_gen")).to_contain_text("grace")
    expect(page.get_by_role("region", name="Fair share, last 15 min")).to_contain_text("ada")
    expect(page.get_by_label("Slots", exact=True)).to_have_value("1")


def show_jobs(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/jobs")
    expect(page.get_by_role("row").nth(8)).to_be_visible()


def show_job(page: Page, site: Site) -> None:
    waiting = site.api.get("/api/v1/jobs?status=queued&user_id=grace&limit=1").json()["jobs"][0]
    page.goto(f"{site.url}/jobs/{waiting['job_id']}")
    expect(page.get_by_role("region", name="Where it stands")).to_contain_text(" for ")
    expect(page.get_by_role("region", name="Events")).to_contain_text("WAITING")
    expect(page.get_by_role("button", name="Copy link for grace")).to_be_visible()


def show_fleet(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/fleet")
    called = page.get_by_role("region", name="Called services", exact=True)
    expect(called).to_contain_text("image_gen")


def show_control(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/control")
    expect(page.get_by_role("region", name="Limits")).to_contain_text("fast_chat_llm")
    expect(page.get_by_role("region", name="Audit")).to_be_visible()


def show_place(page: Page, site: Site) -> None:
    waiting = site.api.get("/api/v1/jobs?status=queued&user_id=bulk&limit=1").json()["jobs"][0]
    made = site.api.post(f"/api/v1/jobs/{waiting['job_id']}/link", json={}).json()
    page.goto(site.url + made["url"])
    expect(page.get_by_text("in line").or_(page.get_by_text("You are next"))).to_be_visible()


VIEWS = {
    "now": show_now,
    "service": show_service,
    "jobs": show_jobs,
    "job": show_job,
    "fleet": show_fleet,
    "control": show_control,
    "place": show_place,
}


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_each_view_shows_its_facts_names_its_controls_and_has_contrast(
    browser: Browser, site: Site, width: int, scheme: Scheme
) -> None:
    with Window(browser, SCREENSHOTS, width=width, scheme=scheme) as window:
        for view, show in VIEWS.items():
            show(window.page, site)
            window.fits()
            window.picture(view)
            assert window.unnamed_controls() == [], view
            assert low_contrast(window.page) == [], view


def test_every_drawing_has_a_table_behind_it(window: Window, site: Site) -> None:
    page = window.open(site.url)
    expect(page.get_by_role("table", name="Slots of image_gen")).to_contain_text("sdxl")
    waits = page.get_by_role("table", name="Waits of prompt_enhancer by tier")
    expect(waits).to_contain_text("30 s")
    page.goto(f"{site.url}/s/image_gen")
    residency = page.get_by_role("table", name="Slots, last 15 min")
    expect(residency).to_contain_text("sdxl")
    page.get_by_role("button", name="Fair share, last 15 min as a table").click()
    expect(page.get_by_role("table", name="Fair share, last 15 min")).to_be_visible()


def test_a_service_without_a_worker_is_named_as_such(window: Window, site: Site) -> None:
    job = site.submit("rare_task", input_data={})
    page = window.open(f"{site.url}/jobs/{job}")
    standing = page.get_by_role("region", name="Where it stands")
    expect(standing).to_contain_text("no live worker runs rare_task")
    expect(standing).to_contain_text("start a worker that offers it")


def test_a_wait_is_red_only_above_its_dashed_line_and_a_late_tier_is_named(
    window: Window, site: Site
) -> None:
    """The line mixes tiers: 40 s is late for the tier high (30 s), and not for low (3,600 s)."""
    with connect(site.url.replace("http", "ws") + "/ws") as socket:
        frame = json.loads(socket.recv())["full"]
    service = frame["services"]["image_gen"]
    for tier, p95 in (("high", 40), ("low", 50)):
        service["tiers"].setdefault(tier, dict(next(iter(service["tiers"].values()))))["p95"] = p95
    service["p95"] = [40] * 60
    message = json.dumps({"n": 1, "full": frame})
    window.page.route_web_socket(re.compile("/ws"), lambda route: route.send(message))
    page = window.open(site.url)
    card = page.get_by_role("region", name="image_gen")
    expect(card.locator(".waits .label.wrong")).to_have_text("high: 40 s, target 30 s")
    expect(card.locator(".waits .figure.wrong, .sparkline.late")).to_have_count(0)
    expect(card.locator(".waits .figure")).to_have_text("40 s")
