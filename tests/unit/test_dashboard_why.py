"""Why a job is next, in one sentence that names only users whom the audience may see."""

from __future__ import annotations

import pytest

from fairlane.dashboard.audience import ADMINISTRATORS, Audience, user_name
from fairlane.dashboard.why import FrontContext, blocked_sentence, duration, why_next
from fairlane.index.index import NextJob
from fairlane.model.service import Fairness, Region, Service
from fairlane.policy.shares import ShareKind
from fairlane.units import SECOND
from tests.unit.driver import HIGH, LOW, MEDIUM, TIERS, job

NOW = 10_000 * SECOND


def context(audience: Audience = ADMINISTRATORS, **more: object) -> FrontContext:
    found = FrontContext(
        service=Service("s"),
        tiers=TIERS,
        loads={"sdxl": 22 * SECOND},
        prices={"paid": 3},
        blocked="",
        now=NOW,
        name=lambda user: user_name(user) if audience.owns(user) else None,
        failing={},
    )
    return found._replace(**more)  # type: ignore[arg-type]


def next_job(
    name: str,
    kind: ShareKind = ShareKind.FRESH,
    *,
    user: str = "acme:u:ada",
    rank: int = MEDIUM,
    level: int | None = None,
    since: int = NOW,
    model: str = "",
    warm: bool = False,
    in_flow: int = 1,
    regions: tuple[str, ...] = (),
    blocked: bool = False,
) -> NextJob:
    entry = job(name, user=user, rank=rank, model=model, regions=regions)
    return NextJob(entry, kind, rank if level is None else level, since, warm, in_flow, blocked)


FRONT = [
    next_job("paid", ShareKind.SKIP, user="acme:u:grace", level=HIGH),
    next_job("retry", ShareKind.FRONT, user="acme:u:bulk", level=HIGH),
    next_job("aged", ShareKind.AGED, rank=LOW, level=HIGH, since=NOW - 3660 * SECOND),
    next_job("warm", user="acme:u:ada", model="sdxl", warm=True),
    next_job("first", user="acme:u:alan", rank=LOW),
    next_job("fair", user="acme:u:edsger", rank=LOW),
    next_job("many", user="acme:u:bulk", rank=LOW, in_flow=10),
]
LAST = next_job("last", user="acme:u:bulk", rank=LOW)

SAID = [
    (["paid"], "paid 3 to go first"),
    (["retry"], "goes first again after a failed attempt"),
    (["promoted"], "waited 61 min: counts as high"),
    (["warm model"], "keeps sdxl loaded (saves 22 s for everyone)"),
    ([], "after ada: equal share"),
    ([], "after alan: equal share"),
    ([], "oldest of bulk's 10"),
]


def test_every_reason_is_a_sentence() -> None:
    assert [tuple(why_next(FRONT, n, context())) for n in range(len(FRONT))] == SAID


def test_the_first_of_the_best_tier_is_said_to_be_that() -> None:
    assert why_next([next_job("only")], 0, context()).sentence == "best tier waiting"
    unfair = Service("s", fairness=Fairness.NONE)
    said = why_next([next_job("only")], 0, context(service=unfair)).sentence
    assert said == "has waited longest in medium"


def test_a_job_that_cannot_start_says_what_it_waits_for() -> None:
    both = Service("s", regions={name: Region(name) for name in ("eu", "us")})
    down = context(service=both, failing={"us": NOW + 4 * SECOND})
    bound = next_job("bound", regions=("us",), blocked=True)
    assert why_next([bound], 0, down).sentence == "us does not answer: next try in 4.0 s"
    all_down = down._replace(failing={"eu": NOW - SECOND, "us": NOW + 4 * SECOND})
    anywhere = next_job("anywhere", blocked=True)
    assert (
        why_next([anywhere], 0, all_down).sentence == "eu and us do not answer: being tried again"
    )
    assert why_next([anywhere], 0, down).sentence == "ada has as many jobs running as allowed"
    paused = down._replace(blocked="the service is paused")
    assert why_next([bound], 0, paused).sentence == "the service is paused"


def test_a_job_past_its_patience_in_its_own_tier_is_aged() -> None:
    aged = next_job("aged", ShareKind.AGED, rank=HIGH, since=NOW - 45 * SECOND)
    assert why_next([aged], 0, context()) == (
        ["aged"],
        "waited 45 s: longer than a job of high should",
    )


def test_the_reason_of_a_foreign_job_names_neither_user_nor_model_nor_price() -> None:
    """S7."""
    said = [why_next(FRONT, n, context(Audience("other"))).sentence for n in range(len(FRONT))]
    for name in ("ada", "alan", "bulk", "edsger", "grace", "sdxl", "3"):
        assert not [each for each in said if name in each.split()], name
    assert said[0] == "paid to go first"
    assert said[3] == "its model is loaded"
    assert said[6] == "oldest of this user's 10"


def test_what_keeps_every_job_from_starting_is_said_of_the_first() -> None:
    blocked = context(blocked="the service is paused")
    assert why_next(FRONT, 0, blocked) == (["paid"], "the service is paused")
    assert why_next(FRONT, 1, blocked).sentence == SAID[1][1]
    service = Service("s", limit=1)
    assert blocked_sentence(service, 0, 0, NOW) == ""
    assert "next try in 12 s" in blocked_sentence(service, NOW + 12 * SECOND, 0, NOW)
    held = blocked_sentence(service, 0, 26_474 * SECOND, NOW)
    assert held == "slot is held until 07:21:14 UTC: a cut call may still run there"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.44, "0.4 s"), (22, "22 s"), (119, "119 s"), (3660, "61 min"), (12_600, "3.5 h")],
)
def test_a_duration_is_said_in_two_digits(seconds: float, said: str) -> None:
    assert duration(round(seconds * SECOND)) == said


def test_a_tenant_whose_name_begins_like_another_is_another() -> None:
    """S7."""
    assert Audience("acme").owns("acme:u:ada")
    assert not Audience("acme").owns("acme2:u:ada")
    assert not Audience("acme", "k1").owns("acme:u:ada")
    assert Audience("acme", "k1").owns("acme:k:k1")
    assert not Audience("acme", "k1").owns("acme:k:k11")


def test_the_last_job_of_a_user_who_is_named_before_is_said_to_be_the_last() -> None:
    front = [*FRONT, LAST]
    assert why_next(front, len(front) - 1, context()).sentence == "last of bulk's"


def test_a_service_without_a_live_worker_says_so() -> None:
    said = blocked_sentence(Service("s"), 0, 0, NOW, has_worker=False)
    assert said == "no live worker runs it"
    assert why_next(FRONT, 0, context(blocked=said)).sentence == said
