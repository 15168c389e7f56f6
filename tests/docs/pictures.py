"""Draws the pictures of the documentation: `python3 dev.py docs pictures`.

The simulator draws who runs when under different orders of service (SVG). A browser takes pictures
of the dashboard while `fairlane demo` runs (PNG)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import NamedTuple

import httpx2
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

from fairlane import Catalog, Service, Tier, Tiers
from fairlane.demo.processes import free_port
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.workload import Arrival, workload
from fairlane.units import SECOND
from tests.browser.conftest import FLAGS, NAMES
from tests.docs.blocks import DOCS
from tests.repo.checkout import ROOT

FOLDER = DOCS / "pictures"

# ── drawn by the simulator ────────────────────────────────────────────────────────────────────

WIDTH, LEFT, ROW, GAP, TOP, BOTTOM = 760, 170, 26, 14, 34, 30
COLOURS = ("#94a3b8", "#2563eb", "#d97706", "#059669", "#c026d3")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #334155 } .in { fill: #fff; text-anchor: middle }
rect { stroke: #fff } .load { fill: #e2e8f0 } line { stroke: #cbd5e1 }
@media (prefers-color-scheme: dark) {
  text { fill: #cbd5e1 } rect { stroke: #0f172a } .load { fill: #334155 } line { stroke: #475569 } }
"""


class Drawing(NamedTuple):
    """The same jobs under several orders of service; one row for each."""

    catalog: Catalog
    arrivals: Sequence[Arrival]
    orders: Sequence[tuple[str, str]]
    """Names of the simulator, and what the picture calls them."""

    seconds: int
    """How much of the time is shown."""

    by_model: bool = False
    """The colour is the model instead of the user."""


def job(at: float, user: str, rank: int, seconds: float, model: str = "") -> Arrival:
    return Arrival(round(at * SECOND), user, rank, "image_gen", model, (round(seconds * SECOND),))


def fair_share() -> Drawing:
    """A bulk of ten jobs, then one job each of two other users and of one who pays."""
    tiers = Tiers([Tier("paid"), Tier("free", promote={"paid": 600})], default="free")
    arrivals = [job(0, "bulk", 1, 10)] * 10
    arrivals += [job(12, "ada", 1, 10), job(14, "linus", 1, 10), job(16, "grace (paid)", 0, 10)]
    orders = [("fifo", "first in, first out"), ("strict", "strict priority")]
    catalog = Catalog(tiers, [Service("image_gen", limit=1)])
    return Drawing(catalog, arrivals, [*orders, ("fairlane", "Fairlane")], 130)


def aging() -> Drawing:
    """More paid jobs than fit, and one free job that came first."""
    tiers = Tiers([Tier("paid"), Tier("free", promote={"paid": 60})], default="free")
    paid = [job(8 * n, "paid jobs", 0, 10) for n in range(40)]
    arrivals = [*paid, job(1, "ada, free", 1, 10)]
    catalog = Catalog(tiers, [Service("image_gen", limit=1)])
    orders = [("strict", "strict priority"), ("fairlane", "Fairlane")]
    return Drawing(catalog, arrivals, orders, 200)


def models() -> Drawing:
    """Two models on one GPU; to load one takes as long as a job."""
    tiers = Tiers([Tier("free", promote={"free": 120})], default="free")
    arrivals = [
        job(4 * n, f"user {n}", 0, 6, "music" if n % 2 else "speech")._replace(load=6 * SECOND)
        for n in range(14)
    ]
    catalog = Catalog(tiers, [Service("image_gen", limit=1, model_load=6)])
    orders = [("fifo", "first in, first out"), ("fairlane", "Fairlane")]
    return Drawing(catalog, arrivals, orders, 170, by_model=True)


def drawn(drawing: Drawing) -> str:
    given = workload("a picture", drawing.arrivals)
    names = [each.model if drawing.by_model else each.user for each in given.arrivals]
    colour = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(dict.fromkeys(names))}
    scale = (WIDTH - LEFT - 10) / drawing.seconds
    height = TOP + (ROW + GAP) * len(drawing.orders) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<style>{STYLE}</style>",
        *legend(colour, with_loads=drawing.by_model),
    ]
    for number, (order, title) in enumerate(drawing.orders):
        y = TOP + number * (ROW + GAP)
        parts.append(f'<text x="0" y="{y + 17}">{escape(title)}</text>')
        served = Scenario("a picture", drawing.catalog, given).run(order).served
        for step in served:
            start, begun, end = (at / SECOND for at in (step.started, step.begun, step.ended))
            if end <= drawing.seconds:
                parts += cell(LEFT + start * scale, y, (begun - start) * scale, "")
                parts += cell(
                    LEFT + begun * scale, y, (end - begun) * scale, colour[names[step.job]]
                )
    parts += axis(drawing.seconds, scale, height - BOTTOM)
    return "".join([*parts, "</svg>\n"])


def cell(x: float, y: float, width: float, colour: str) -> Iterator[str]:
    if width >= 1:
        paint = f'fill="{colour}"' if colour else 'class="load"'
        yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="2" {paint}/>'


def legend(colours: dict[str, str], *, with_loads: bool) -> Iterator[str]:
    x = LEFT
    for name, colour in [*colours.items(), *([("loads a model", "")] if with_loads else [])]:
        paint = f'fill="{colour}"' if colour else 'class="load"'
        yield f'<rect x="{x}" y="6" width="12" height="12" rx="2" {paint}/>'
        yield f'<text x="{x + 17}" y="16">{escape(name)}</text>'
        x += 34 + 7 * len(name)


def axis(seconds: int, scale: float, y: int) -> Iterator[str]:
    yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - 10}" y2="{y}"/>'
    for at in range(0, seconds - 9, 20 if seconds < 140 else 40):
        yield f'<text x="{LEFT + at * scale:.0f}" y="{y + 17}">{at} s</text>'


# ── taken of the dashboard ────────────────────────────────────────────────────────────────────

VIEWPORT: ViewportSize = {"width": 1200, "height": 760}
MANY_ENDED, MANY_WAITING = 25, 20
MORE_JOBS = (("image_gen", 9), ("prompt_enhancer", 14), ("fast_chat_llm", 12), ("model_3d_gen", 5))
USERS = (("ada", "high"), ("grace", "medium"), ("linus", "low"), ("ben", "low"))
WAIT_MS = 60_000


@contextmanager
def demo() -> Iterator[str]:
    """A running demo of the gateway. Yields its address."""
    port = free_port(0)
    command = [sys.executable, "-m", "fairlane", "demo", "--speed", "100", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser_page() -> Iterator[Page]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise SystemExit("the pictures of the dashboard need Chromium: apt-get install chromium")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *as_root])
        context = browser.new_context(
            viewport=VIEWPORT, color_scheme="light", reduced_motion="reduce"
        )
        context.set_default_timeout(WAIT_MS)
        yield context.new_page()
        browser.close()


def take_pictures() -> None:
    with demo() as url, browser_page() as page:
        wait_for_jobs(page, url, "completed", MANY_ENDED)
        page.goto(url)
        add_load(url)
        wait_for_jobs(page, url, "queued", MANY_WAITING)
        expect(page.get_by_role("heading", name="image_gen")).to_be_visible(timeout=WAIT_MS)
        page.screenshot(path=FOLDER / "dashboard.png")
        last = {"status": "queued", "tier": "low"}  # it waits long enough for its picture
        waiting = httpx2.get(f"{url}/api/v1/jobs", params=last).json()["jobs"]
        page.goto(f"{url}/jobs/{waiting[0]['job_id']}")
        expect(page.get_by_text(re.compile("ahead of you"))).to_be_visible(timeout=WAIT_MS)
        page.screenshot(path=FOLDER / "job.png")


def add_load(url: str) -> None:
    """More jobs than the slots can take at once, of four users in three tiers."""
    for name, count in MORE_JOBS:
        for n in range(count):
            user, tier = USERS[n % len(USERS)]
            body = {"feature_name": name, "user_id": user, "priority": tier}
            httpx2.post(f"{url}/api/v1/jobs", json=body).raise_for_status()


def wait_for_jobs(page: Page, url: str, status: str, count: int) -> None:
    """Until that many jobs have the status."""
    while True:
        try:
            found = httpx2.get(f"{url}/api/v1/jobs", params={"status": status, "limit": 100})
            if len(found.json()["jobs"]) >= count:
                return
        except httpx2.TransportError:  # it is starting
            pass
        page.wait_for_timeout(500)


def draw_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in (("fair-share", fair_share()), ("aging", aging()), ("models", models())):
        (FOLDER / f"{name}.svg").write_text(drawn(drawing), "utf-8")
    take_pictures()
