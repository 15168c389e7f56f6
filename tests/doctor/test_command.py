"""`fairlane doctor` against a running server: forms, exit codes, a job, a service, the bundle."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fairlane.cli import app
from fairlane.config.load import without_settings
from fairlane.model.key import Role
from tests.api.server import Gateway, free_port, gateway
from tests.doctor.patient import WORKER, Patient, demand_command

Typed = Callable[..., Coroutine[Any, Any, Result]]
NOBODY = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"


@pytest.fixture
async def served(patient: Patient) -> AsyncIterator[Gateway]:
    async with gateway(patient.engine) as running:
        running.app.app_context.doctor = patient.doctor  # its clock is the test's
        yield running


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Gateway) -> Typed:
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)

    async def run(*arguments: str, **variables: str) -> Result:
        variables = {"FAIRLANE_URL": served.url, **variables}
        return await asyncio.to_thread(
            lambda: CliRunner().invoke(app, arguments, env=variables, catch_exceptions=False)
        )

    return run


@pytest.mark.embedded
async def test_a_healthy_system_is_fine_and_the_exit_code_is_0(
    typed: Typed, patient: Patient
) -> None:
    await patient.alive()
    await patient.world.submit("work")
    await patient.engine.sweep()
    said = await typed("doctor")
    assert said.exit_code == 0, said.stdout
    assert "✓ ledger and index agree (1 job)" in said.stdout
    assert "0 wrong, 0 to know, 0 unknown, " in said.stdout
    assert "read-only" in said.stdout


@pytest.mark.embedded
async def test_what_is_wrong_has_a_figure_a_command_and_a_page(
    typed: Typed, patient: Patient
) -> None:
    await patient.engine.sweep()
    await patient.world.submit("work")
    said = await typed("doctor", "--only", "no-worker,paused")
    assert said.exit_code == 1
    assert "✗ 1 job waits and no live worker runs work" in said.stdout
    assert "do:   fairlane workers list --all" in said.stdout
    assert "why:  /docs/checks#no-worker" in said.stdout
    short = await typed("doctor", "-o", "short", "work")
    assert "✗ work no-worker: 1 job waits" in short.stdout
    report = json.loads((await typed("doctor", "-o", "json")).stdout)
    assert {each["verdict"] for each in report["findings"]} == {"ok", "wrong"}


@pytest.mark.embedded
async def test_a_warning_leaves_the_exit_code_at_0(typed: Typed, patient: Patient) -> None:
    await patient.alive()
    await patient.engine.change("services", "scarce", "paused", value=True)
    await patient.world.submit("scarce")
    said = await typed("doctor", "--only", "paused")
    assert (said.exit_code, "! scarce is paused" in said.stdout) == (0, True)


@pytest.mark.embedded
async def test_a_server_that_does_not_answer_could_not_be_looked_at(typed: Typed) -> None:
    said = await typed("doctor", FAIRLANE_URL=f"http://127.0.0.1:{free_port()}")
    assert said.exit_code == 2
    assert "did not answer" in said.stderr


@pytest.mark.embedded
async def test_unknown_names_are_refused_with_the_known_ones(typed: Typed) -> None:
    said = await typed("doctor", "--only", "no-wurker")
    assert said.exit_code == 2
    assert "no-worker" in said.stderr
    assert 'no service "nothing"' in (await typed("doctor", "nothing")).stderr
    assert "--pre" in (await typed("doctor", "--pre", "work")).stderr


@pytest.mark.embedded
async def test_it_needs_an_admin_key(typed: Typed, served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    said = await typed("doctor", FAIRLANE_KEY=key)
    assert said.exit_code == 2
    for path in ("/admin/doctor", f"/admin/doctor/jobs/{NOBODY}", "/admin/doctor/bundle"):
        async with served.client(key) as client:
            assert (await client.get(path)).status_code == 403


async def test_a_job_is_explained_in_the_words_of_its_explain_route(
    typed: Typed, patient: Patient, served: Gateway
) -> None:
    await patient.alive()
    await patient.engine.sweep()
    first, second = [await patient.world.submit("scarce") for _ in range(2)]
    await patient.world.claim_one(WORKER)
    async with served.client() as client:
        explained = (await client.get(f"/api/v1/jobs/{second}/explain")).json()
        told = (await client.get(f"/admin/doctor/jobs/{second}")).json()["findings"]
    texts = [each["text"] for each in told if each["category"] == "job"]
    assert texts == [each["text"] for each in explained["reasons"]]
    assert "scarce 1/1 busy" in texts
    for each in told:
        demand_command(each["command"])
    said = await typed("doctor", first, "-o", "short")
    assert said.exit_code == (1 if patient.clustered else 0), said.stdout  # fsync is off there


@pytest.mark.embedded
@pytest.mark.parametrize("fault", ["no worker", "paused", "lost", "ended"])
async def test_why_a_job_does_not_run(typed: Typed, patient: Patient, fault: str) -> None:
    if fault != "no worker":
        await patient.alive()
    await patient.engine.sweep()
    job = await patient.world.submit("work")
    if fault == "paused":
        await patient.engine.change("services", "work", "paused", value=True)
    if fault == "lost":
        await patient.core.index.take([(job, 1 << 40)])
    if fault == "ended":
        await patient.engine.cancel(job)
    said = await typed("doctor", job)
    expected = {
        "no worker": (1, "✗ no live worker runs work"),
        "paused": (0, "! the service is paused"),
        "lost": (1, "✗ the ledger has the job queued and the index does not know it"),
        "ended": (0, "✓ has ended: cancelled"),
    }[fault]
    assert (said.exit_code, expected[1] in said.stdout) == (expected[0], True), said.stdout


@pytest.mark.embedded
async def test_wait_looks_again_until_all_is_well(typed: Typed, patient: Patient) -> None:
    await patient.world.submit("work")
    waiting = asyncio.create_task(typed("doctor", "--only", "no-worker", "--wait", "60"))
    await patient.doctor.gatherer.looked.wait()
    await patient.alive()
    patient.pass_seconds(2)
    await patient.alive()
    said = await waiting
    assert said.exit_code == 0, said.stdout


CANARIES = {
    "input": "input-canary-71c2",
    "output": "output-canary-44aa",
    "error": "error-canary-0b9e",
    "callback": "callback-canary-98d1",
    "user": "user-canary-5511",
    "tag": "tag-canary-3300",
    "idempotency": "idempotency-canary-1f1f",
}


@pytest.mark.embedded
async def test_the_bundle_lists_its_content_and_holds_no_secret_and_no_payload(
    typed: Typed, patient: Patient, served: Gateway, tmp_path: Path
) -> None:
    """S19: canaries in every field of a job, in keys and in webhooks are not in the file."""
    admin, client = await served.key(Role.ADMIN), await served.key(Role.CLIENT)
    await patient.alive()
    for n in range(4):
        await patient.world.submit(
            "fragile",
            input={"text": CANARIES["input"]},
            user=CANARIES["user"],
            tags=(CANARIES["tag"],),
            callback=f"https://example.com/{CANARIES['callback']}",
            idempotency_key=f"{CANARIES['idempotency']}-{n}",
        )
    done, failed, _ = await patient.world.claim(3, WORKER)
    await patient.engine.complete(done, {"text": CANARIES["output"]})
    await patient.engine.fail(failed, message=CANARIES["error"])
    await patient.engine.set_tier(CANARIES["user"], "high", "acme")
    await patient.engine.add_credits(CANARIES["user"], 5, "op", CANARIES["input"], "acme")
    file = tmp_path / "bundle.zip"
    said = await typed("doctor", "--bundle", str(file), FAIRLANE_KEY=admin)
    assert said.exit_code == 0, said.stderr
    with zipfile.ZipFile(file) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert all(name in said.stdout for name in texts)
    assert set(texts) >= {"versions.json", "settings.json", "facts.json", "metrics.txt"}
    assert json.loads(texts["facts.json"])["RunningFacts"]["jobs"]
    assert "fairlane_jobs_submitted_total" in texts["metrics.txt"]
    secrets = [each.partition(".")[2] for each in (admin, client)]
    for name, text in texts.items():
        for canary in (*CANARIES.values(), *secrets):
            assert canary not in text, f"{canary} in {name}"
    again = await typed("doctor", "--bundle", str(file), FAIRLANE_KEY=admin)
    assert again.exit_code == 1


@pytest.mark.embedded
async def test_the_page_of_the_checks_is_served(served: Gateway) -> None:
    async with served.client() as client:
        page = await client.get("/docs/checks")
        style = await client.get("/docs/checks.css")
    assert page.headers["content-type"].startswith("text/html")
    assert '<h2 id="stuck-slot">' in page.text
    assert style.status_code == 200
