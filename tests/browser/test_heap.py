"""A page that is left open all day does not grow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, WebSocketRoute, expect

from tests.browser.conftest import SCREENSHOTS
from tests.browser.site import Site
from tests.browser.window import Window

FRAMES, WARM_UP = 10_000, 1_000
BATCH = 100
MAX_GROWTH_BYTES = 1_500_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_heap_is_flat_over_ten_thousand_frames(browser: Browser, site: Site) -> None:
    """The frames are the server's own, repeated with other figures as fast as the page takes
    them."""
    with Window(browser, SCREENSHOTS) as window:
        page, opened = window.page, list[WebSocketRoute]()
        page.route_web_socket("**/ws", lambda route: opened.append(route))  # noqa: PLW0108
        page.goto(site.url)
        expect(page.get_by_role("heading", level=1)).to_have_text("Now")
        socket, frame = opened[0], first_frame(site)
        socket.send(json.dumps({"n": 1, "full": frame}))
        session = window.context.new_cdp_session(page)
        overview = page.get_by_role("region", name="Overview")
        sizes: list[tuple[float, float]] = []
        for n in range(BATCH, FRAMES + 1, BATCH):
            for k in range(n - BATCH, n):
                socket.send(json.dumps(changed(frame, k + 2)))
            expect(overview).to_contain_text(f"{n + 1:,} waiting")
            if n in (WARM_UP, FRAMES):
                session.send("HeapProfiler.collectGarbage")
                used = session.send("Runtime.getHeapUsage")["usedSize"]
                sizes.append((used, session.send("Memory.getDOMCounters")["nodes"]))
        (before, nodes_before), (after, nodes_after) = sizes
        assert after - before < MAX_GROWTH_BYTES
        assert nodes_after < nodes_before * 1.2 + 200


def first_frame(site: Site) -> dict[str, Any]:
    from websockets.sync.client import connect

    with connect(site.url.replace("http", "ws") + "/ws") as socket:
        frame = json.loads(socket.recv())["full"]
    assert isinstance(frame, dict)
    return frame


def changed(frame: dict[str, Any], n: int) -> dict[str, Any]:
    """A delta that moves what really moves: slots, the queue, the line of waits."""
    at = frame["at"] + n * 1000
    slots = [
        {**each, "since": at - 1000 * (n % 5), "job": f"job-{n}-{each['slot']}", "state": "running"}
        for each in frame["services"]["prompt_enhancer"]["slots"]
    ]
    rows = frame["services"]["prompt_enhancer"]["next"]
    return {
        "n": n,
        "set": {
            "at": at,
            "totals/waiting": n,
            "services/prompt_enhancer/slots": slots,
            "services/prompt_enhancer/next": [{**each, "user": f"u{n % 50}"} for each in rows],
            "services/prompt_enhancer/p95": [(n + k) % 30 for k in range(60)],
            "services/image_gen/tiers/high/waiting": n % 9,
            f"services/passing_{n % 3}": frame["services"]["image_gen"],
        },
        "gone": [f"services/passing_{(n + 1) % 3}"],
    }
