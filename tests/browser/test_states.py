"""States of the page that are rare on a test server, shown from frames that the test writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, WebSocketRoute, expect
from websockets.sync.client import connect

from tests.browser.conftest import SCREENSHOTS
from tests.browser.contrast import low_contrast
from tests.browser.site import Site
from tests.browser.window import Scheme, Window

Frame = dict[str, Any]
VIEWS = {"/": "Now", "/s/image_gen": "image_gen", "/jobs": "Jobs", "/fleet": "Fleet"}
WORKER = {
    "name": "gpu-1",
    "state": "active",
    "running": 1,
    "capacity": 2,
    "region": None,
    "services": ["resize"],
    "models": ["sdxl"],
    "version": "",
}
WORKER_ID = "01a1ecda-6aad-7024-80d8-568902db7624"


def frame_of(site: Site) -> Frame:
    with connect(site.url.replace("http", "ws") + "/ws", max_size=None) as socket:
        found: Frame = json.loads(socket.recv())["full"]
    return found


def send(window: Window, frame: Frame) -> None:
    """The page gets this frame, and no other."""
    message = json.dumps({"n": 1, "full": frame})
    window.page.route_web_socket(re.compile("/ws"), lambda route: route.send(message))


def with_tasks(frame: Frame) -> Frame:
    """Only a pulled task type without a limit, a live worker and a dead one."""
    tasks = frame["services"]["image_gen"] | {
        "kind": "workers",
        "limit": None,
        "running": 3,
        "slots": [],
        "models": [],
        "health": {"": {"state": "closed", "until": None, "running": 3, "limit": None}},
    }
    tasks["health"][""]["waiting"] = 4
    at = {"last_seen": frame["at"]}
    dead = WORKER | at | {"name": "gpu-2", "state": "dead", "models": []}
    return frame | {
        "services": {"resize": tasks},
        "totals": frame["totals"] | {"slots": 0, "slots_used": 0, "running": 3},
        "workers": {WORKER_ID: WORKER | at, "other": dead},
        "alerts": [],
    }


def with_every_colour(frame: Frame) -> Frame:
    """Six tiers, every state of a slot and a region, badges, late tiers and alerts."""
    names = ["high", "medium", "low", "fourth", "fifth", "sixth"]
    service = frame["services"]["image_gen"]
    tier = service["tiers"]["high"] | {"waiting": 3, "p95": 90, "p50": 9}
    badges = [["paid"], ["retry"], ["promoted"], ["aged"], ["warm model"], []]
    row = service["next"][0]
    cell = service["slots"][0]
    many = [cell | {"slot": n, "tier": name, "model": None} for n, name in enumerate(names)]
    held = cell | {"slot": 6, "state": "held", "job": None, "user": None, "tier": None}
    gate = {"until": None, "running": 1, "limit": 2, "waiting": 5}
    loud = service | {
        "tiers": dict.fromkeys(names, tier),
        "next": [row | {"tier": t, "badges": b} for t, b in zip(names, badges, strict=True)],
        "slots": [*many, held],
        "p95": [90] * 60,
        "health": {
            "US": gate | {"state": "open", "until": frame["at"] + 60_000},
            "EU": gate | {"state": "half_open"},
            "ASIA": gate | {"state": "closed"},
        },
    }
    single = {
        f"one_{name}": service | {"slots": [cell | {"tier": name, "model": "sdxl"}]}
        for name in names
    }
    alert = {"check": "x", "subject": "image_gen", "text": "It is late.", "page": "/docs/checks"}
    verdicts = ("wrong", "warning", "unknown")
    return with_tasks(frame) | {
        "services": {"image_gen": loud, **single, **with_tasks(frame)["services"]},
        "tiers": [
            {"name": name, "target_seconds": 30, "share_in_target": share / 10, "started": 9}
            for share, name in enumerate(names, 5)
        ],
        "alerts": [alert | {"verdict": each, "command": "fairlane doctor"} for each in verdicts],
    }


def test_pull_tasks_without_a_limit_show_what_runs(window: Window, site: Site) -> None:
    send(window, with_tasks(frame_of(site)))
    page = window.open(site.url)
    overview = page.get_by_role("region", name="Overview")
    expect(overview).to_contain_text("running, no limit")
    expect(overview).not_to_contain_text("of 0")
    card = page.get_by_role("region", name="resize", exact=True)
    expect(card).to_contain_text("3 running, no limit")
    expect(card).to_contain_text("starts in")
    expect(card).to_contain_text("19 of 20 jobs waited less than")


def test_the_fleet_separates_called_services_from_task_types(window: Window, site: Site) -> None:
    send(window, with_tasks(frame_of(site)))
    page = window.open(f"{site.url}/fleet")
    expect(page.get_by_role("region", name="Task types", exact=True)).to_contain_text("resize")
    expect(page.get_by_role("region", name="Called services")).to_have_count(0)
    workers = page.get_by_role("region", name="Workers")
    expect(workers).to_contain_text("gpu-1")
    expect(workers).not_to_contain_text(WORKER_ID)
    expect(workers.get_by_title(f"id {WORKER_ID}")).to_be_visible()
    dead = workers.get_by_role("listitem").filter(has_text="gpu-2")
    expect(dead).not_to_contain_text("holds")
    expect(page.get_by_role("region", name="Models in memory")).to_contain_text("worker gpu-1")


def test_the_rest_of_a_queue_is_counted_in_words(window: Window, site: Site) -> None:
    frame = frame_of(site)
    frame["services"]["image_gen"]["tiers"]["low"]["waiting"] = 40
    send(window, frame)
    page = window.open(site.url)
    more = page.get_by_role("region", name="image_gen", exact=True).get_by_text("more waiting")
    expect(more).to_have_attribute("href", "/s/image_gen")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_every_colour_has_contrast(
    browser: Browser, site: Site, width: int, scheme: Scheme
) -> None:
    frame = with_every_colour(frame_of(site))
    with Window(browser, SCREENSHOTS, width=width, scheme=scheme) as window:
        send(window, frame)
        for path in ("/", "/s/image_gen", "/fleet", "/control"):
            window.open(site.url + path)
            expect(window.page.get_by_text("image_gen").first).to_be_visible()
            window.fits()
            window.picture(f"states{path.replace('/', '-')}")
            assert low_contrast(window.page) == [], path


def test_the_page_shows_its_structure_before_the_first_frame(window: Window, site: Site) -> None:
    """The socket opens and says nothing: how fast the server samples does not matter."""
    silent: list[str] = []

    def say_nothing(route: WebSocketRoute) -> None:
        silent.append(route.url)

    window.page.route_web_socket(re.compile("/ws"), say_nothing)
    for path, title in VIEWS.items():
        page = window.open(site.url + path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.get_by_role("link", name="Fleet")).to_be_visible()
        expect(page.get_by_role("searchbox").or_(page.get_by_role("combobox"))).to_be_visible()
        window.fits()
    assert silent
