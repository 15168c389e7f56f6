"""Checks of the order of service: no tier starves, and promotions are announced."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.doctor.facts import AccuracyFacts, Facts, FrontFacts, Here, LineFacts, RoundFacts
from fairlane.doctor.findings import Diagnosis, check, fine, warn, wrong
from fairlane.doctor.words import count, lasts, share
from fairlane.units import SECOND

STARVING_FACTOR, SLOW_FACTOR = 4, 2
"""Multiples of its patience that the oldest job of a tier has waited."""

NEVER_PROMOTED_MICROSECONDS = 3_600 * SECOND
LATE_PROMOTIONS = 100
ROUND_LATE_MICROSECONDS = 60 * SECOND
FULL_PASS_LATE_MICROSECONDS = 600 * SECOND
MIN_ESTIMATES, MIN_KEPT = 50, 0.75
MIN_STARTS, MIN_IN_TARGET = 20, 0.9


@check(
    "tier-starving",
    "tiers",
    (LineFacts, Here),
    "The oldest job of a tier has waited several times its patience, the time after which it "
    "counts as the best tier that it can reach, while its service runs other jobs. A tier "
    "without promotion can wait for ever behind better tiers.",
    "`fairlane jobs explain JOB` shows the next promotion. `fairlane check` shows the promotion "
    "times of every tier and the shares of aged jobs.",
    "The service has too little capacity for what is submitted: raise its limit or add workers, "
    "or limit the better tiers (`pending`, `per_hour`). A tier that must be served gets "
    "promotion times (`promote`). What a change would do: `fairlane whatif NAME --limit N`.",
    public=True,
)
def tier_starving(facts: Facts) -> Iterator[Diagnosis]:
    here, found = facts[Here], False
    tiers, stats = here.catalog.tiers, facts[LineFacts].stats
    busy = {each.pool.removeprefix("svc:") for each in stats.pools if each.held}
    for depth in stats.depths:
        limited = here.catalog.service(depth.service).limit
        if depth.oldest is None or not depth.waiting or (limited and depth.service not in busy):
            continue
        waited, patience = here.now - depth.oldest, tiers.patience[depth.rank]
        tier, shown = tiers.names[depth.rank], here.lasts(waited)
        text = (
            f"the oldest of {count(depth.waiting, f'{tier} job')} at {depth.service} waits "
            f"since {shown}"
        )
        command = f"fairlane jobs list --status queued --name {depth.service}"
        if patience and waited > SLOW_FACTOR * patience:
            say = wrong if waited > STARVING_FACTOR * patience else warn
            found = True
            yield say(f"{text} (patience {here.lasts(patience)})", shown, command, depth.service)
        elif depth.rank and not patience and waited > NEVER_PROMOTED_MICROSECONDS:
            found = True
            yield warn(
                f"{text}, and the tier is never promoted",
                shown,
                command,
                depth.service,
            )
    if not found:
        yield fine("no tier waits beyond its patience")


@check(
    "promotions-late",
    "tiers",
    (FrontFacts,),
    "Many jobs count as a better tier than their owners were told. The order of service is "
    "right, because aging is computed when a job is claimed. Only the announcements are late.",
    "`fairlane jobs explain JOB` shows the effective tier.",
    "Check that maintenance runs: [maintenance-late](#maintenance-late).",
    public=True,
)
def promotions_late(facts: Facts) -> Iterator[Diagnosis]:
    late = facts[FrontFacts].overtaken
    if late >= LATE_PROMOTIONS:
        text = f"at least {count(late, 'promotion')} not announced yet"
        yield warn(text, late, "fairlane doctor --only promotions-late --wait 60", "queue")
    else:
        yield fine("promotions are announced", late)


@check(
    "maintenance-late",
    "queue",
    (RoundFacts, Here),
    "The periodic maintenance of this process has not finished a round for a minute (full "
    "passes: ten minutes). It takes back expired leases, frees slots, announces promotions, "
    "publishes the outbox and compares the index with the ledger. Another process may still do "
    "it.",
    "The server's log has lines that begin with `sweep:`, and names the step that fails or hangs.",
    "If the stores answer slowly, repair that first. Otherwise restart the process.",
    public=True,
)
def maintenance_late(facts: Facts) -> Iterator[Diagnosis]:
    now, late = facts[Here].now, False
    for name, ended_at in facts[RoundFacts].ended_at.items():
        most = FULL_PASS_LATE_MICROSECONDS if name == "compare" else ROUND_LATE_MICROSECONDS
        if now - ended_at > most:
            late = True
            text = (
                f"the maintenance round `{name}` of this process has not ended for "
                f"{lasts(now - ended_at)}"
            )
            command = "fairlane doctor --only maintenance-late --wait 60"
            yield wrong(text, lasts(now - ended_at), command, "queue")
    if not late:
        yield fine("maintenance runs")


@check(
    "eta-off",
    "tiers",
    (AccuracyFacts,),
    "Fewer than three quarters of the recent starts of a service were within the p90 that was "
    "told first. Users see waits that are too short.",
    "`fairlane_eta_error_seconds` in `/metrics`, and the accuracy on the page of the service.",
    "Estimates learn from every start. They are off for a while after a limit, the workers or "
    "the duration of jobs changed. If they stay off, the duration of jobs varies a lot: name "
    "the model of each job, so that its own times are learnt.",
    public=True,
)
def eta_off(facts: Facts) -> Iterator[Diagnosis]:
    found, off = facts[AccuracyFacts].estimates, False
    for name, (told, kept) in sorted(found.items()):
        if told >= MIN_ESTIMATES and kept < MIN_KEPT * told:
            off = True
            text = f"{share(kept, told)} of the last {told} jobs started in the time told"
            yield warn(text, share(kept, told), f"fairlane doctor {name}", name)
    if not off:
        yield fine("estimated waits hold", sum(told for told, _ in found.values()))


@check(
    "target-missed",
    "tiers",
    (AccuracyFacts, Here),
    "Fewer than nine of ten starts of a tier in the last 15 minutes were within the tier's target.",
    "The dashboard shows the waits of each tier beside its target; "
    "`fairlane_queue_wait_seconds` in `/metrics` has the same.",
    "Give the service more capacity, or the tier a larger target. What another limit would do: "
    "`fairlane whatif NAME --limit N`.",
    public=True,
)
def target_missed(facts: Facts) -> Iterator[Diagnosis]:
    here = facts[Here]
    targets = {tier.name: tier.target for tier in here.catalog.tiers.all if tier.target}
    missed = False
    for (name, tier), (started, in_time) in sorted(facts[AccuracyFacts].targets.items()):
        if tier in targets and started >= MIN_STARTS and in_time < MIN_IN_TARGET * started:
            missed = True
            text = (
                f"{share(in_time, started)} of {started:,} {tier} jobs started within "
                f"{here.lasts(targets[tier] * SECOND)}"
            )
            yield warn(text, share(in_time, started), f"fairlane doctor {name}", name)
    if targets and not missed:
        yield fine("tiers start within their targets")


CHECKS = (tier_starving, target_missed, promotions_late, maintenance_late, eta_off)
