"""What a user does on the dashboard changes the real queue."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.browser.window import Window

HELD = {"hold": True}


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast")).to_contain_text(text)


def state(site: Site, job: str) -> str:
    return str(site.job(job)["status"])


def failed_job(site: Site, user: str) -> str:
    """A job that a service has refused, so it can only be replayed."""
    job = site.submit("fast_chat_llm", user, input_data={"fail": "the prompt is too long"})
    with site.api.stream("GET", f"/api/v1/jobs/{job}/events", headers=SSE) as events:
        assert any("JOB_FAILED" in line or "JOB_DEAD" in line for line in events.iter_lines())
    return job


SSE = {"Accept": "text/event-stream"}


# --- one job -------------------------------------------------------------------------------------
def test_cancelling_asks_first_and_then_cancels(window: Window, site: Site) -> None:
    job = site.submit("image_gen", "canceller", "low", input_data=HELD)
    page = window.open(f"{site.url}/jobs/{job}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("It ends at once and for good.")
    assert window.unnamed_controls() == []
    page.get_by_role("button", name="Keep as it is").click()
    assert state(site, job) == "queued"
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    toast(page, "The job is cancelled.")
    assert state(site, job) == "cancelled"
    expect(page.get_by_role("region", name="Where it stands")).to_contain_text("Cancelled")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)


def test_a_paid_skip_shows_its_price_and_moves_the_job(window: Window, site: Site) -> None:
    credit = {"amount": 10, "operation_key": "skip-test"}
    site.api.post("/admin/users/payer/credits", json=credit)
    job = site.submit("image_gen", "payer", "low", input_data=HELD)
    page = window.open(f"{site.url}/jobs/{job}")
    page.get_by_role("button", name=re.compile("^Skip for 3")).click()
    expect(page.get_by_role("dialog")).to_contain_text("payer has 10 credits.")
    page.get_by_role("button", name="Pay 3").click()
    toast(page, "Paid. The job goes first.")
    standing = page.get_by_role("region", name="Where it stands")
    expect(standing).to_contain_text("1st for image_gen")
    page.goto(site.url)
    first = page.get_by_role("list", name="Next for image_gen").get_by_role("listitem").first
    expect(first).to_contain_text("payer")
    expect(first).to_contain_text("paid")


def test_a_failed_job_says_why_and_can_be_replayed(window: Window, site: Site) -> None:
    job = failed_job(site, "unlucky")
    page = window.open(f"{site.url}/jobs/{job}")
    standing = page.get_by_role("region", name="Where it stands")
    expect(standing).to_contain_text("the prompt is too long")
    window.picture("job-failed")
    fence = page.get_by_role("region", name="Events").get_by_role("listitem").count()
    page.get_by_role("button", name="Replay").click()
    toast(page, "It runs again, with all attempts.")
    events = page.get_by_role("region", name="Events").get_by_role("listitem")
    expect(events.nth(fence)).to_be_visible()


def test_a_job_is_followed_to_its_end_without_a_reload(window: Window, own_site: Site) -> None:
    job = own_site.submit("full_pipeline", "ada", input_data={"hold": True, "prompt": "A heron"})
    page = window.open(f"{own_site.url}/jobs/{job}")
    standing = page.get_by_role("region", name="Where it stands")
    expect(standing).to_contain_text("Runs on prompt_enhancer")
    own_site.services.release()
    expect(standing).to_contain_text("Completed")
    expect(page.get_by_role("region", name="Output of step 3 · image_gen")).to_contain_text(
        "Neon towers"
    )
    spent = page.get_by_role("region", name="How the time was spent")
    expect(spent.get_by_role("table")).to_contain_text("fast_chat_llm")
    window.picture("job-completed")


def test_explain_is_shown_as_json(window: Window, site: Site) -> None:
    job = site.submit("image_gen", "curious", "low", input_data=HELD)
    page = window.open(f"{site.url}/jobs/{job}")
    page.get_by_role("button", name="Explain as JSON").click()
    expect(page.get_by_role("dialog", name="Explain")).to_contain_text('"next_promotion_at"')


def test_a_fan_out_is_a_matrix_whose_failed_cells_can_be_retried(
    window: Window, site: Site
) -> None:
    matrix = {"style": ["oil", "ink", "chalk"], "model": ["sdxl", "flux"]}
    job = site.submit("fast_chat_llm", "painter", input_data={"fail": "no brush"}, matrix=matrix)
    page = window.open(f"{site.url}/jobs/{job}")
    cells = page.get_by_role("region", name="Matrix of the fan-out")
    expect(cells.get_by_role("button", name=re.compile("(failed|dead)$"))).to_have_count(6)
    window.picture("job-matrix")
    cells.get_by_role("button").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("no brush")
    page.get_by_role("button", name="Retry this cell").click()
    toast(page, "The cell will run again.")


# --- many jobs -----------------------------------------------------------------------------------
def test_selected_jobs_are_cancelled_together(window: Window, site: Site) -> None:
    jobs = [site.submit("image_gen", "several", "low", input_data=HELD) for _ in range(3)]
    page = window.open(f"{site.url}/jobs?q=user:several")
    boxes = page.get_by_role("checkbox")
    expect(boxes).to_have_count(3)
    boxes.nth(0).check()
    boxes.nth(2).check()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 2").click()
    toast(page, "2 jobs of 2 changed.")
    assert sorted(map(state, [site] * 3, jobs)) == ["cancelled", "cancelled", "queued"]


def test_everything_that_matches_is_previewed_before_it_is_cancelled(
    window: Window, site: Site
) -> None:
    jobs = [site.submit("image_gen", "masses", "low", input_data=HELD) for _ in range(4)]
    page = window.open(f"{site.url}/jobs?q=user:masses status:queued")
    page.get_by_role("button", name="Cancel all…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("4 jobs")
    expect(dialog).to_contain_text("A cancelled job cannot be brought back")
    window.picture("bulk-preview")
    assert {state(site, job) for job in jobs} == {"queued"}
    page.get_by_role("button", name="Cancel 4 jobs").click()
    expect(dialog).to_contain_text("4 done, 0 left alone, 0 failed of 4.")
    assert {state(site, job) for job in jobs} == {"cancelled"}


def test_dead_letters_are_a_saved_search(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs")
    page.get_by_role("link", name="dead letters").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    expect(page).to_have_url(f"{site.url}/jobs?q=status%3Adead")


def test_a_job_is_submitted_and_opened(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/jobs")
    window.is_live()
    page.get_by_role("link", name="Submit a job").click()
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Service, pipeline or task").fill("image_gen")
    dialog.get_by_label("Input, as JSON").fill("{")
    expect(dialog).to_contain_text("This is not JSON yet.")
    dialog.get_by_label("Input, as JSON").fill('{"hold": true, "prompt": "A crane"}')
    dialog.get_by_label("User", exact=True).fill("submitter")
    dialog.get_by_label("Tier").select_option("low")
    assert window.unnamed_controls() == []
    dialog.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("/jobs/[0-9a-f-]{36}$"))
    expect(page.get_by_role("region", name="Input")).to_contain_text("A crane")


def test_the_form_warns_when_no_live_worker_can_run_the_job(window: Window, site: Site) -> None:
    site.submit("lonely_task", input_data={})
    page = window.open(f"{site.url}/jobs?new=1")
    window.is_live()
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Service, pipeline or task").fill("lonely_task")
    expect(dialog).to_contain_text("No live worker can run lonely_task")
    window.picture("submit-warning")
    dialog.get_by_label("Service, pipeline or task").fill("image_gen")
    expect(dialog).not_to_contain_text("No live worker")


def test_a_refused_submit_says_why(window: Window, site: Site) -> None:
    window.accepted = ("status of 422",)
    page = window.open(f"{site.url}/jobs?new=1")
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Service, pipeline or task").fill("not a name")
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("feature_name")


# --- the installation ----------------------------------------------------------------------------
def test_a_limit_is_changed_after_a_confirmation(window: Window, own_site: Site) -> None:
    page = window.open(f"{own_site.url}/s/image_gen")
    limits = page.get_by_role("region", name="Limits")
    limits.get_by_label("Slots").fill("3")
    limits.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("slots: 1 → 3")
    dialog.get_by_role("button", name="Change it now").click()
    toast(page, "image_gen is changed in every process.")
    services = own_site.api.get("/admin/services").json()["services"]
    assert next(each["limit"] for each in services if each["name"] == "image_gen") == 3
    expect(page.get_by_text("3 slots").first).to_be_visible()
    page.goto(f"{own_site.url}/control")
    expect(page.get_by_role("region", name="Audit")).to_contain_text("image_gen")


def test_a_service_is_paused_and_opened_again(window: Window, own_site: Site) -> None:
    page = window.open(f"{own_site.url}/s/fast_chat_llm")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Change it now").click()
    expect(page.get_by_role("button", name="Open again…")).to_be_visible()
    expect(page.locator(".page-head")).to_contain_text("paused")
    page.goto(f"{own_site.url}/jobs?new=1")
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Service, pipeline or task").fill("fast_chat_llm")
    expect(dialog).to_contain_text("fast_chat_llm is paused")


def test_what_if_shows_simulated_waits_beside_todays(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/s/image_gen")
    page.get_by_role("region", name="What if").get_by_role("slider").fill("4")
    page.get_by_role("button", name="Simulate the last hour").click()
    waits = page.get_by_role("table", name="19 of 20 jobs wait less than")
    expect(waits).to_contain_text("with 4")
    window.picture("what-if")


def test_a_user_gets_a_tier_and_credits(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/control")
    window.is_live()
    users = page.get_by_role("region", name="Users")
    users.get_by_label("User", exact=True).fill("vip")
    users.get_by_role("button", name="Look up").click()
    expect(users).to_contain_text("vip no stored tier, 0 credits")
    users.get_by_label("New tier").select_option("high")
    page.get_by_role("button", name="Set the tier").click()
    expect(users).to_contain_text("vip high, 0 credits")
    users.get_by_role("button", name="Give credits…").click()
    page.get_by_role("spinbutton", name="Credits").fill("25")
    page.get_by_role("button", name="Give 25").click()
    expect(users).to_contain_text("vip high, 25 credits")


def test_webhook_secrets_are_shown_on_demand_only(window: Window, site: Site) -> None:
    page = window.open(f"{site.url}/control")
    hooks = page.get_by_role("region", name="Webhooks")
    expect(hooks).not_to_contain_text("whsec_")
    assert not [url for url in window.requests if "webhooks/secret" in url]
    hooks.get_by_role("button", name="Show the secrets").click()
    expect(hooks).to_contain_text("whsec_")


def test_a_worker_is_drained_after_a_confirmation(window: Window, site: Site) -> None:
    body = {"capabilities": [], "capacity": 2, "task_types": ["lonely_task"]}
    worker = site.api.post("/internal/workers/register", json=body).json()["worker_id"]
    page = window.open(f"{site.url}/fleet")
    page.get_by_role("button", name=f"drain {worker}").click()
    expect(page.get_by_role("dialog")).to_contain_text("finishes the ones it has")
    page.get_by_role("button", name="Drain it").click()
    toast(page, "The worker finishes what it has")
    told = site.api.post(f"/internal/workers/{worker}/heartbeat", json={})
    assert told.json()["drain"] is True


def test_what_is_wrong_is_said_on_now_and_by_the_doctor(window: Window, own_site: Site) -> None:
    own_site.submit("rare_task", input_data={})
    page = window.open(f"{own_site.url}/control")
    doctor = page.get_by_role("region", name="Doctor")
    doctor.get_by_role("button", name="Run every check").click()
    expect(doctor).to_contain_text("no live worker runs rare_task")
    expect(doctor).to_contain_text("fine")
    page.goto(own_site.url)
    alert = page.locator(".alert.wrong")
    expect(alert).to_contain_text("no live worker runs rare_task", timeout=60_000)
    expect(alert.get_by_role("button")).to_contain_text("fairlane")
    window.picture("now-alert")
