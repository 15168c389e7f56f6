"""Checks of workers and of what they do: dead workers, poison jobs, dead letters, webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from fairlane.doctor.facts import (
    CeleryFacts,
    EndedFacts,
    Facts,
    Here,
    LineFacts,
    RunningFacts,
    WebhookFacts,
    WorkerFacts,
)
from fairlane.doctor.findings import Diagnosis, check, fine, warn, wrong
from fairlane.doctor.words import count, share, waits
from fairlane.model.state import State
from fairlane.model.webhook import Delivery, Webhook
from fairlane.model.worker import WorkerState
from fairlane.units import SECOND

RECENTLY_MICROSECONDS = 3_600 * SECOND
POISON_STARTS = 5
DEAD_LETTERS_PER_MINUTE = 10
MIN_ENDED, FAILING_SHARE = 20, 0.5
MIN_TRIES, MIN_FAILED_WEBHOOKS = 3, 10
IDLE_CELERY_TASKS = 10


@check(
    "workers-dead",
    "workers",
    (WorkerFacts, LineFacts, Here),
    "Workers were not heard for three heartbeats and did not sign off. Their jobs are taken "
    "back and run again elsewhere. If no worker is left and jobs wait, nothing runs.",
    "`fairlane workers list --all` shows when each was last heard.",
    "Look at the machine and the log of the worker, and start it again. A worker that stops "
    "with SIGTERM signs off and does not appear here.",
)
def workers_dead(facts: Facts) -> Iterator[Diagnosis]:
    here, workers = facts[Here], facts[WorkerFacts].workers
    now = here.now
    alive = [
        each for each, at in workers if now - at <= each.lease and each.state is WorkerState.ACTIVE
    ]
    dead = [
        (each, at)
        for each, at in workers
        if each.state is not WorkerState.DEAD and each.lease < now - at < RECENTLY_MICROSECONDS
    ]
    waiting = sum(each.waiting for each in facts[LineFacts].stats.depths)
    if not dead:
        yield fine(f"{count(len(alive), 'worker')} alive", len(alive))
        return
    names = ", ".join(each.name or each.id for each, _ in dead[:3]) + ("…" if len(dead) > 3 else "")
    last = max(at for _, at in dead)
    text = (
        f"{count(len(dead), 'worker')} silent ({names}), last heard {here.lasts(now - last)} ago; "
        f"{len(alive)} alive"
    )
    if alive or not waiting:
        yield warn(text, len(dead), "fairlane workers list --all", "workers")
    else:
        text += f", {waits(waiting)}"
        yield wrong(text, len(dead), "fairlane workers list --all", "workers")


@check(
    "worker-versions",
    "workers",
    (WorkerFacts, Here),
    "Live workers that offer the same services have different versions. That is normal during a "
    "rolling upgrade.",
    "`fairlane workers list --json` shows the version of each worker.",
    "Finish the upgrade: drain the workers of the old version with `fairlane workers drain "
    "WORKER`.",
)
def worker_versions(facts: Facts) -> Iterator[Diagnosis]:
    now = facts[Here].now
    versions: dict[tuple[str, ...], Counter[str]] = {}
    for worker, at in facts[WorkerFacts].workers:
        if worker.version and now - at <= worker.lease and worker.state is WorkerState.ACTIVE:
            offer = tuple(sorted(worker.services or ()))
            versions.setdefault(offer, Counter())[worker.version] += 1
    for offer, found in sorted(versions.items()):
        if len(found) > 1:
            shown = ", ".join(f"{n} × {version}" for version, n in sorted(found.items()))
            text = (
                f"{len(found)} versions of workers for {', '.join(offer) or 'any service'}: {shown}"
            )
            yield warn(text, len(found), "fairlane workers list", "workers")


@check(
    "poison-job",
    "workers",
    (RunningFacts,),
    "A running job has been started five times or more. It may kill its workers, or run into "
    "its timeout each time.",
    "`fairlane jobs show JOB`, and the log of its worker at the start times.",
    "If it kills its workers, cancel it: `fairlane jobs cancel JOB`. It becomes a dead letter "
    "by itself when its attempts are used up.",
)
def poison_job(facts: Facts) -> Iterator[Diagnosis]:
    found = sorted(
        (job for job in facts[RunningFacts].jobs if job.fence >= POISON_STARTS),
        key=lambda job: -job.fence,
    )
    if found:
        worst = found[0]
        text = f"job {worst.id} ({worst.current.service}) runs for the {worst.fence}th time"
        text += f", and {len(found) - 1} more like it" if len(found) > 1 else ""
        yield warn(text, worst.fence, f"fairlane jobs show {worst.id}", worst.current.service)


@check(
    "dead-letters",
    "workers",
    (EndedFacts,),
    "More than ten jobs a minute become dead letters: all their attempts failed.",
    "`fairlane dead list` shows the last errors. `fairlane dead show JOB` shows every attempt.",
    "Repair what the errors name. Then run the jobs again: `fairlane dead replay --name NAME`.",
)
def dead_letters(facts: Facts) -> Iterator[Diagnosis]:
    ended = facts[EndedFacts]
    new = ended.last_minute.get(State.DEAD, 0)
    if new >= DEAD_LETTERS_PER_MINUTE:
        text = f"{count(new, 'new dead letter')} in a minute, {ended.dead:,} in all"
        yield warn(text, new, "fairlane dead list", "workers")
    else:
        yield fine(f"{count(ended.dead, 'dead letter')}, {new:,} new in a minute", ended.dead)


@check(
    "failures",
    "workers",
    (EndedFacts,),
    "At least half of the jobs that ended in the last minute failed.",
    "`fairlane jobs list --status failed` shows the newest.",
    "Look at their errors with `fairlane jobs show JOB`. Jobs that failed by a fault of a "
    "service can be resumed: `fairlane jobs resume JOB`.",
)
def failures(facts: Facts) -> Iterator[Diagnosis]:
    ended = facts[EndedFacts].last_minute
    bad = ended.get(State.FAILED, 0) + ended.get(State.DEAD, 0)
    whole = bad + ended.get(State.COMPLETED, 0)
    if whole >= MIN_ENDED and bad >= FAILING_SHARE * whole:
        text = f"{bad:,} of {whole:,} jobs that ended in a minute failed"
        yield warn(text, share(bad, whole), "fairlane jobs list --status failed", "workers")


@check(
    "webhooks-failing",
    "workers",
    (WebhookFacts,),
    "Webhooks to a receiver fail again and again, or were given up. The jobs themselves are not "
    "affected.",
    "The log has a line `webhook` for each attempt with the status of the answer.",
    "Repair the receiver. Deliveries are repeated for about three days and have the same "
    "`webhook-id` each time. A blocked address must be allowed first: `callbacks` in the "
    "settings.",
)
def webhooks_failing(facts: Facts) -> Iterator[Diagnosis]:
    latest = facts[WebhookFacts].latest
    failing: dict[str, list[Webhook]] = {}
    for webhook, outcome in latest:
        given_up = outcome in (Delivery.FAILED, Delivery.BLOCKED)
        if given_up or (outcome is None and webhook.tries >= MIN_TRIES):
            failing.setdefault(urlsplit(webhook.url).hostname or "?", []).append(webhook)
    for host, found in sorted(failing.items()):
        delivered = sum(
            outcome is Delivery.DELIVERED and urlsplit(webhook.url).hostname == host
            for webhook, outcome in latest
        )
        text = f"{count(len(found), 'webhook')} to {host} failed, {delivered} of the latest arrived"
        say = wrong if len(found) >= MIN_FAILED_WEBHOOKS and not delivered else warn
        yield say(text, len(found), f"fairlane jobs show {found[-1].job}", "webhooks")
    if latest and not failing:
        yield fine(f"webhooks arrive ({len(latest)} looked at)", len(latest))


@check(
    "celery-idle",
    "workers",
    (CeleryFacts,),
    "Tasks wait in a balanced Celery queue and none of them runs: probably no Celery worker "
    "consumes the queue.",
    "`fairlane celery loads -A proj` shows the waiting and running tasks of each queue.",
    "Start a worker for it: `celery -A proj worker -Q $(fairlane celery queues -A proj)`. If the "
    "counts are wrong, `fairlane celery reset -A proj` counts again.",
    public=True,
)
def celery_idle(facts: Facts) -> Iterator[Diagnosis]:
    loads = facts[CeleryFacts].loads or {}
    idle = {
        name: load for name, load in loads.items() if load[0] >= IDLE_CELERY_TASKS and not load[1]
    }
    for name, (pending, _) in sorted(idle.items()):
        text = f"{count(pending, 'task')} wait in the Celery queue {name} and none runs"
        yield warn(text, pending, "fairlane doctor --only celery-idle --wait 60", "celery")
    if loads and not idle:
        yield fine(f"every Celery queue with tasks is served ({len(loads)})", len(loads))


CHECKS = (
    workers_dead,
    worker_versions,
    poison_job,
    dead_letters,
    failures,
    webhooks_failing,
    celery_idle,
)
