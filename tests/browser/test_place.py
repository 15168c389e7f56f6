"""*My place*: the page of an end user, who has a link and no key."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

from tests.browser.conftest import SCREENSHOTS
from tests.browser.site import Site
from tests.browser.window import Window


def test_the_link_shows_a_place_and_then_the_result(browser: Browser, own_site: Site) -> None:
    own_site.submit("image_gen", "somebody_else", input_data={"hold": True})
    job = own_site.submit("image_gen", "visitor", "low", input_data={"hold": True})
    made = own_site.api.post(f"/api/v1/jobs/{job}/link", json={}).json()
    with Window(browser, SCREENSHOTS, width=400) as window:
        page = window.open(own_site.url + made["url"])
        expect(page.get_by_text(re.compile("You are (next|[0-9]+..) ?(in line)?"))).to_be_visible()
        assert "somebody_else" not in page.content()
        assert job not in page.content()
        window.picture("place-waiting")
        assert window.unnamed_controls() == []
        own_site.services.release()
        expect(page.get_by_text("Done", exact=True)).to_be_visible()
        expect(page.get_by_label("Result")).to_contain_text("Neon towers")
        window.picture("place-done")


def test_a_forged_link_says_what_to_do(window: Window, keyed_site: Site) -> None:
    window.accepted = ("status of 404", "status of 401", "status of 403", "status of 410")
    page = window.open(f"{keyed_site.url}/p/forged")
    expect(page.get_by_text("This link is not valid any more.")).to_be_visible()
