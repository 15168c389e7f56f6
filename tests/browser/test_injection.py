"""S11, S25: text of users is text. A corpus of stored scripts goes into every field that a page
shows; none may run, and none may become markup."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import ADMIN_KEY, Site
from tests.browser.test_sign_in import sign_in
from tests.browser.window import Window

CORPUS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=2>",
    '"><svg onload=window.pwned=3>',
    "'-window.pwned-'",
    "javascript:window.pwned=4",
    "{{constructor.constructor('window.pwned=5')()}}",
    "<iframe srcdoc='<script>parent.pwned=6</script>'>",
    "</textarea><style>body{display:none}</style>",
    "<a href=javascript:window.pwned=7 autofocus onfocus=window.pwned=8>x</a>",
    "\u202eevil\u2066",
    "__proto__",
    "constructor",
)
ALL = " ".join(CORPUS)
FOUND = """() => ({
  pwned: window.pwned ?? null,
  scripts: document.querySelectorAll("script").length,
  foreign: document.querySelectorAll(
    "img, iframe, object, embed, style, [onerror], [onload], [onfocus]").length,
  links: [...document.querySelectorAll("a")]
    .filter((link) => !link.href.startsWith(location.origin)).length,
  polluted: ({}).pwned ?? null,
})"""
CLEAN = {"pwned": None, "scripts": 1, "foreign": 0, "links": 0, "polluted": None}


HOSTILE_URL = "https://127.0.0.1:9/?" + "".join(each for each in ALL if " " < each <= "~")


@pytest.fixture(scope="module")
def poisoned(site: Site) -> dict[str, str]:
    """Jobs, users, tags, models, errors, results, progress, callbacks and workers whose every text
    is hostile."""
    jobs = {}
    for n, text in enumerate(CORPUS):
        user = f"evil{n} {text}"[:200]
        more = {"tags": [text], "model": text.replace("|", "")[:100]}
        held = {"hold": True, text: text}
        jobs[text] = site.submit("image_gen", user, "low", input_data=held, **more)
    jobs["failed"] = site.submit("fast_chat_llm", ALL[:200], input_data={"fail": ALL})
    matrix = {"style": list(CORPUS), "model": ["a", "b"]}
    failing = {"fail": ALL}
    jobs["matrix"] = site.submit("fast_chat_llm", ALL[:200], input_data=failing, matrix=matrix)
    jobs["callback"] = site.submit("image_gen", input_data=ALL, callback_url=HOSTILE_URL)
    jobs |= work_of_a_hostile_worker(site)
    site.api.put("/admin/users/" + "evil", json={"priority": "low"})
    credit = {"amount": 1, "operation_key": "evil", "note": ALL[:200]}
    site.api.post("/admin/users/evil/credits", json=credit)
    return jobs


def work_of_a_hostile_worker(site: Site) -> dict[str, str]:
    """One task with each text as its progress, one that failed and one that is complete."""
    body = {
        "task_types": ["evil_task"],
        "version": CORPUS[1],
        "region": "EU",
        "capacity": 100,
        "heartbeat_seconds": 200,
    }
    worker = site.api.post("/internal/workers/register", json=body).json()["worker_id"]

    def post(what: str, **body: Any) -> Any:
        answer = site.api.post(f"/internal/workers/{worker}/{what}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def taken(input_data: Any) -> tuple[str, dict[str, str]]:
        job = site.submit("evil_task", ALL[:200], input_data=input_data)
        model = {"loaded": CORPUS[2], "load_seconds": 1, "tasks": 1}
        found = post("poll", available_capacity=1, wait_seconds=20, model=model)["tasks"]
        return job, {"task_id": found[0]["task_id"], "lease": found[0]["lease"]}

    jobs = {}
    for text in CORPUS:
        jobs[f"progress {text}"], task = taken(text)
        post("progress", **task, percent=40, text=text)
    jobs["error"], task = taken(ALL)
    error = {"message": ALL, "retriable": False, "code": CORPUS[0]}
    post("result", **task, status="failed", error=error)
    jobs["result"], task = taken(ALL)
    post("result", **task, status="completed", result={ALL: list(CORPUS)}, metrics={ALL: ALL})
    return jobs


def is_clean(page: Page) -> None:
    assert page.evaluate(FOUND) == CLEAN


@pytest.mark.parametrize("path", ["/", "/s/image_gen", "/jobs", "/fleet", "/control"])
def test_hostile_text_stays_text_in_a_view(
    window: Window, site: Site, poisoned: dict[str, str], path: str
) -> None:
    """S11, S25"""
    page = window.open(site.url + path)
    window.is_live()
    window.get_frames(2)
    is_clean(page)


def test_hostile_text_stays_text_on_the_page_of_each_job(
    window: Window, site: Site, poisoned: dict[str, str]
) -> None:
    """S11, S25: input, tags, model, user, progress, errors, events, results and callback."""
    for which, job in poisoned.items():
        page = window.open(f"{site.url}/jobs/{job}")
        text = which.removeprefix("progress ")
        shown = text if text in CORPUS else CORPUS[0]
        expect(page.get_by_role("region", name="Input", exact=True)).to_contain_text(shown)
        standing = page.get_by_role("region", name="Where it stands")
        if which.startswith("progress "):
            expect(standing).to_contain_text(text)
        elif which in CORPUS:
            expect(page.get_by_role("region", name="About")).to_contain_text(text)
        elif which == "callback":
            expect(page.get_by_role("region", name="About")).to_contain_text("<script>window")
        elif which == "error":
            expect(standing).to_contain_text(CORPUS[0])
        elif which == "result":
            expect(page.get_by_role("region", name="Output of step 1")).to_contain_text(CORPUS[0])
        is_clean(page)


def test_hostile_text_stays_text_beside_the_list(
    window: Window, site: Site, poisoned: dict[str, str]
) -> None:
    """The peek, and the dialog of a bulk action."""
    page = window.open(f"{site.url}/jobs?q=service:image_gen")
    expect(page.get_by_role("row").nth(len(CORPUS))).to_be_visible()
    peek = page.get_by_role("complementary", name="Peek")
    for _ in range(len(CORPUS) + 1):  # the newest is the job with the callback
        page.keyboard.press("j")
        expect(peek.get_by_role("heading", name="Input")).to_be_visible()
        is_clean(page)
    expect(peek).to_contain_text(CORPUS[0])
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Cancel all…").click()
    expect(page.get_by_role("dialog")).to_contain_text("evil0 <script>")
    is_clean(page)


def test_hostile_text_stays_text_on_the_page_of_an_end_user(
    window: Window, site: Site, poisoned: dict[str, str]
) -> None:
    """S11: the progress, the error and the result on *My place*."""
    for which, job in poisoned.items():
        if which in CORPUS[1:] or which == "matrix":
            continue  # a place in the queue has no text of its own
        link = site.api.post(f"/api/v1/jobs/{job}/link", json={}).json()["url"]
        page = window.open(site.url + link)
        expect(page.get_by_role("status")).not_to_have_text("Looking for your place.")
        if which.startswith("progress "):
            expect(page.get_by_role("main")).to_contain_text(which.removeprefix("progress "))
        elif which in {"error", "result"}:
            expect(page.get_by_role("main")).to_contain_text(CORPUS[0])
        is_clean(page)


def test_hostile_names_of_keys_stay_text(window: Window, keyed_site: Site) -> None:
    """S11, S25: in the list, in the question before one is revoked, and in the audit log."""
    for text in CORPUS:
        body = {"role": "read", "name": text}
        assert keyed_site.api.post("/admin/keys", json=body).status_code == 201
    page = window.open(f"{keyed_site.url}/control")
    sign_in(page, ADMIN_KEY)
    keys = page.get_by_role("region", name="Keys")
    for text in CORPUS:
        expect(keys).to_contain_text(text)
    is_clean(page)
    keys.get_by_role("button", name=f"revoke {CORPUS[1]}", exact=True).first.click()
    expect(page.get_by_role("dialog")).to_contain_text(CORPUS[1])
    is_clean(page)


def test_a_hostile_search_stays_text(window: Window, site: Site) -> None:
    page = window.open(site.url)
    window.is_live()
    for text in CORPUS:
        page.keyboard.press("/")
        page.keyboard.insert_text(f'tag:"{text}"')
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        is_clean(page)


def test_a_hostile_service_name_in_the_address_stays_text(window: Window, site: Site) -> None:
    window.accepted = ("status of 404", "status of 422")
    page = window.open(f"{site.url}/s/%3Cimg%20src=x%20onerror=window.pwned=9%3E")
    expect(page.get_by_text("No service is called <img")).to_be_visible()
    is_clean(page)


def test_the_page_cannot_make_markup_out_of_text(window: Window, site: Site) -> None:
    """S11: Trusted Types; even our own code could not."""
    window.accepted = ("TrustedHTML", "Trusted Type")
    page = window.open(site.url)
    thrown = page.evaluate(
        """() => { try { document.body.innerHTML = "<b>x</b>"; return "" }
                   catch (error) { return error.name } }"""
    )
    assert thrown == "TypeError"
    page.evaluate("window.violations = []")
