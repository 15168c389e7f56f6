"""The dashboard without a mouse."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.window import Window

J_THEN_ENTER = """async () => {
  const press = (key) =>
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("j");
  await Promise.resolve();
  press("Enter");
}"""
"""Both keys before the page is painted again: quicker than any finger, and the same every time."""

TYPE_AFTER_A_SEARCH = """async () => {
  const input = document.querySelector("form.search input");
  document.querySelector('a[href="/jobs?q=status%3Afailed"]').click();
  for (let n = 0; n < 100 && input.value !== "status:failed"; n++) await Promise.resolve();
  const shown = input.value;
  input.value = "user:ada";
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)));
  return [shown, input.value];
}"""
"""What is typed as soon as the box shows the search, before the page is painted."""


def test_letters_open_the_views(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    for key, title in (("j", "Jobs"), ("f", "Fleet"), ("c", "Control"), ("n", "Now")):
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("s")
    expect(page).to_have_url(f"{site.url}/s/prompt_enhancer")
    page.keyboard.press("Shift+J")
    expect(page).to_have_url(f"{site.url}/jobs")
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{site.url}/")


def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(
    window: Window, site: Site
) -> None:
    page = window.open(site.url)
    window.is_live()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("pause, go on")
    assert window.unnamed_controls() == []
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)


def test_ctrl_k_goes_to_a_service_by_a_part_of_its_name(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("3d")
    expect(page.get_by_role("option", selected=True)).to_have_text("Service model_3d_gen")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/s/model_3d_gen")


def test_a_slash_searches_and_the_search_is_in_the_address(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    page.keyboard.press("/")
    page.keyboard.type("user:linus status:queued")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs\?q=user%3Alinus%20status%3Aqueued$"))
    rows = page.get_by_role("row")
    expect(rows.nth(1)).to_contain_text("linus")
    expect(page.get_by_role("row").filter(has_text="ada")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Find a job, user or tag")).to_have_value("user:linus status:queued")
    page.keyboard.press("/")
    page.keyboard.type("colour:red")
    page.keyboard.press("Enter")
    expect(page.get_by_text("colour:red is not known")).to_be_visible()


def test_what_is_typed_right_after_a_search_stays(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs?q=user:grace")
    expect(page.get_by_role("row").nth(2)).to_be_visible()
    assert page.evaluate(TYPE_AFTER_A_SEARCH) == ["status:failed", "user:ada"]


def test_j_and_k_peek_at_jobs_and_enter_opens_one(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs?q=user:grace")
    expect(page.get_by_role("row").nth(2)).to_be_visible()
    for _ in range(3):  # faster than the page draws
        page.keyboard.press("j")
    expect(page.get_by_role("row").nth(3)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    peek = page.get_by_role("complementary", name="Peek")
    expect(peek).to_contain_text("A futuristic city")
    expect(page.get_by_role("row", selected=True)).to_have_count(1)
    expect(page.get_by_role("row").nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(page.get_by_role("row").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(peek).to_have_count(0)
    page.evaluate(J_THEN_ENTER)
    expect(page).to_have_url(re.compile("/jobs/[0-9a-f-]{36}$"))


def test_t_changes_the_theme_and_the_choice_stays(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    expect(page.get_by_role("button", name="theme: dark")).to_be_visible()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    window.is_live()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_letters_typed_into_a_field_stay_there(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/control")
    field = page.get_by_role("textbox", name="User")
    field.fill("")
    field.press_sequentially("njp?t")
    expect(field).to_have_value("njp?t")
    expect(page).to_have_url(f"{site.url}/control")


def test_the_tab_key_reaches_the_content_by_one_step(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
