"""The picture follows the server, holds still when asked to, and survives a lost network."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.browser.window import Window


def waiting(page: Page) -> int:
    found = re.search(r"([\d,]+) waiting", page.get_by_role("region", name="Overview").inner_text())
    assert found is not None
    return int(found.group(1).replace(",", ""))


def test_a_submitted_job_appears_by_itself(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    before = waiting(page)
    site.submit("image_gen", "newcomer", "low", input_data={"hold": True})
    expect(page.get_by_role("region", name="Overview")).to_contain_text(f"{before + 1} waiting")


def test_p_holds_the_picture_and_p_lets_it_go(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    page.keyboard.press("p")
    paused = page.get_by_role("button", name="paused; pause or go on")
    expect(paused).to_be_visible()
    before = waiting(page)
    site.submit("image_gen", "newcomer", "low", input_data={"hold": True})
    window.get_frames(3)
    assert waiting(page) == before
    page.keyboard.press("p")
    expect(page.get_by_role("region", name="Overview")).to_contain_text(f"{before + 1} waiting")


def test_the_picture_stands_still_while_text_is_selected(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    before = waiting(page)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    still = page.get_by_role("button", name="still while you select; pause or go on")
    expect(still).to_be_visible()
    site.submit("image_gen", "newcomer", "low", input_data={"hold": True})
    window.get_frames(3)
    assert waiting(page) == before
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.get_by_role("region", name="Overview")).to_contain_text(f"{before + 1} waiting")


def test_a_lost_network_is_said_and_the_picture_comes_back(window: Window, site: Site) -> None:
    window.accepted = ("ERR_INTERNET_DISCONNECTED",)
    page = window.open(site.url)
    window.is_live()
    before = waiting(page)
    window.context.set_offline(True)
    offline = page.get_by_role("button", name="offline, trying again; pause or go on")
    expect(offline).to_be_visible()
    window.picture("offline")
    site.submit("image_gen", "newcomer", "low", input_data={"hold": True})
    window.context.set_offline(False)
    window.is_live()
    expect(page.get_by_role("region", name="Overview")).to_contain_text(f"{before + 1} waiting")


def test_a_hidden_tab_closes_its_socket_and_a_shown_one_opens_it(
    window: Window, site: Site
) -> None:
    page = window.open(site.url)
    window.is_live()
    sockets = [url for url in window.requests if url.startswith("ws:")]
    with page.expect_event("websocket") as opened:
        page.evaluate(
            """() => {
              const show = (hidden) => {
                Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
              };
              show(true);
              show(false);
            }"""
        )
    assert "after=" in opened.value.url
    assert len(sockets) == 1
    window.is_live()


def test_the_list_of_jobs_does_not_move_and_offers_newer_ones(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs")
    first = page.get_by_role("row").nth(1)
    before = first.inner_text()
    window.is_live()
    expect(page.get_by_role("button", name=re.compile("^as of"))).to_be_visible()
    job = site.submit("image_gen", "newcomer", "low", input_data={"hold": True})
    newer = page.get_by_role("button", name=re.compile("^[1-9].* newer, show"))
    expect(newer).to_be_visible()
    assert first.inner_text() == before
    newer.click()
    expect(first).to_contain_text(job[-4:])


def test_selecting_jobs_freezes_the_list(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs")
    page.get_by_role("checkbox").first.check()
    frozen = page.get_by_role("button", name="1 selected; the list stands still")
    expect(frozen).to_be_disabled()
