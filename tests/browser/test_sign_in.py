"""Signing in with a key, and what each role sees."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.site import ADMIN_KEY, Site
from tests.browser.window import Window


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def new_key(site: Site, role: str, tenant: str = "default") -> str:
    body = {"role": role, "tenant": tenant, "name": f"a {role}"}
    return str(site.api.post("/admin/keys", json=body).json()["key"])


def test_a_key_opens_the_dashboard_and_signing_out_closes_it(
    window: Window, keyed_site: Site
) -> None:
    window.accepted = ("status of 401",)
    page = window.open(keyed_site.url)
    expect(page.get_by_label("API key")).to_be_focused()
    window.picture("sign-in")
    assert window.unnamed_controls() == []
    sign_in(page, "wrong.key")
    expect(page.get_by_role("alert")).to_have_text("This key is not valid.")
    sign_in(page, ADMIN_KEY)
    window.is_live()
    expect(page.get_by_role("heading", level=1)).to_have_text("Now")
    assert ADMIN_KEY not in str(window.context.cookies())
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_signed_in_administrator_changes_things(window: Window, keyed_site: Site) -> None:
    page = window.open(f"{keyed_site.url}/control")
    sign_in(page, ADMIN_KEY)
    page.get_by_role("button", name="New key…").click()
    page.get_by_label("Name").fill("made in the browser")
    page.get_by_role("button", name="Make the key").click()
    dialog = page.get_by_role("dialog", name="The new key")
    secret = dialog.get_by_role("button", name="copy").inner_text()
    assert "." in secret
    page.keyboard.press("Escape")
    keys = page.get_by_role("region", name="Keys")
    expect(keys).to_contain_text("made in the browser")
    keys.get_by_role("button", name="revoke made in the browser").click()
    page.get_by_role("button", name="Revoke it").click()
    expect(keys).not_to_contain_text("made in the browser")


def test_a_reader_sees_and_cannot_change(window: Window, keyed_site: Site) -> None:
    job = keyed_site.submit("image_gen", "ada", input_data={"hold": True})
    page = window.open(f"{keyed_site.url}/jobs/{job}")
    sign_in(page, new_key(keyed_site, "read"))
    expect(page.get_by_role("region", name="Where it stands")).to_be_visible()
    expect(page.get_by_role("button", name="Explain as JSON")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    page.goto(f"{keyed_site.url}/jobs")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
    expect(page.get_by_role("link", name="Submit a job")).to_have_count(0)
    page.goto(f"{keyed_site.url}/control")
    expect(page.get_by_text("Control needs a key of the role admin")).to_be_visible()


def test_a_tenant_sees_no_foreign_user(window: Window, keyed_site: Site) -> None:
    keyed_site.submit("image_gen", "secret_user", input_data={"hold": True})
    keyed_site.submit("image_gen", "secret_user", input_data={"hold": True})
    page = window.open(keyed_site.url)
    sign_in(page, new_key(keyed_site, "client", "shop"))
    window.is_live()
    expect(page.get_by_role("list", name="Next for image_gen")).to_contain_text("another tenant")
    assert "secret_user" not in page.content()


def test_a_revoked_key_ends_the_session(window: Window, keyed_site: Site) -> None:
    window.accepted = ("status of 401", "failed: Error during WebSocket handshake")
    key = new_key(keyed_site, "read")
    page = window.open(f"{keyed_site.url}/jobs")
    sign_in(page, key)
    window.is_live()
    keyed_site.api.delete(f"/admin/keys/{key.partition('.')[0]}")
    page.get_by_role("link", name="queued", exact=True).click()
    expect(page.get_by_label("API key")).to_be_visible()
