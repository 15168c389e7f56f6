"""No class that jumps the line can take all of it, and none is shut out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.service import Shares
from fairlane.policy.order import Candidate, QueueHeads, choose
from fairlane.policy.shares import MAX_CREDIT_THOUSANDTHS, Credits, ShareKind, granted, may_jump

PICKS = 2000
SAVED = MAX_CREDIT_THOUSANDTHS // 1000
"""What a class may have saved up before the count begins."""

NO_CAPS = Shares(1000, 1000, 1000)
HEADS = QueueHeads(
    Candidate(0, 1, 1, 1, "skip", -1, ShareKind.SKIP),
    Candidate(0, 1, 1, 1, "front", -1, ShareKind.FRONT),
    Candidate(0, 1, 1, 1, "aged", 2, ShareKind.AGED),
    Candidate(1, 1, 1, 1, "fresh", 1, ShareKind.FRESH),
)

some_credit = st.integers(0, MAX_CREDIT_THOUSANDTHS)
all_credits = st.builds(Credits, some_credit, some_credit, some_credit)
share = st.integers(0, 1000)
all_shares = st.builds(Shares, share, share, share)
some_heads = st.tuples(*(st.sampled_from([None, head]) for head in HEADS)).map(QueueHeads._make)


def picks(heads: QueueHeads, shares: Shares, n: int = PICKS) -> Counter[ShareKind]:
    """Who gets n grants while all of these always wait."""
    credit = Credits()
    counts: Counter[ShareKind] = Counter()
    for _ in range(n):
        choice = choose(heads, credit, shares)
        assert choice is not None
        credit = granted(credit, choice.candidate.kind, shares, jumped=choice.jumped)
        counts[choice.candidate.kind] += 1
    return counts


def test_with_everybody_waiting_each_class_gets_its_share() -> None:
    counts = picks(HEADS, Shares())
    assert counts[ShareKind.SKIP] == pytest.approx(PICKS / 2, abs=2 * SAVED)
    assert counts[ShareKind.FRONT] == pytest.approx(PICKS / 2 / 5, abs=2 * SAVED)
    assert counts[ShareKind.AGED] == pytest.approx(PICKS / 2 * 4 / 5 / 4, abs=2 * SAVED)
    assert counts[ShareKind.FRESH] >= 0.3 * PICKS - 2 * SAVED


@given(
    all_shares,
    st.sampled_from([ShareKind.SKIP, ShareKind.FRONT, ShareKind.AGED]),
    st.integers(1, 400),
)
def test_no_class_takes_more_than_its_share_of_what_is_left_to_it(
    shares: Shares, kind: ShareKind, n: int
) -> None:
    if shares[kind] == 1000:
        return
    counts = picks(HEADS, shares, n)
    left_to_it = n - sum(counts[better] for better in ShareKind if better < kind)
    assert counts[kind] <= left_to_it * shares[kind] / 1000 + SAVED


@given(some_heads, st.integers(1, 400))
def test_fresh_work_keeps_three_tenths_whoever_else_waits(heads: QueueHeads, n: int) -> None:
    if heads.fresh is not None:
        assert picks(heads, Shares(), n)[ShareKind.FRESH] >= 0.3 * n - 3 * SAVED


@given(some_heads, all_credits, all_shares)
def test_somebody_goes_whenever_anybody_waits(
    heads: QueueHeads, credit: Credits, shares: Shares
) -> None:
    choice = choose(heads, credit, shares)
    assert (choice is None) == (not any(heads))


@given(all_credits, all_shares, st.sampled_from(ShareKind), st.booleans())
def test_credit_stays_between_nothing_and_four_grants(
    credit: Credits, shares: Shares, kind: ShareKind, jumped: bool
) -> None:
    after = granted(credit, kind, shares, jumped=jumped)
    assert all(0 <= each <= MAX_CREDIT_THOUSANDTHS for each in after)


@given(all_credits, all_shares, st.sampled_from(ShareKind))
def test_only_a_jump_is_paid_for(credit: Credits, shares: Shares, kind: ShareKind) -> None:
    after = granted(credit, kind, shares, jumped=False)
    assert all(now >= before for now, before in zip(after, credit, strict=True))


@given(all_credits, all_shares, st.sampled_from(ShareKind))
def test_each_class_earns_only_from_what_better_classes_leave(
    credit: Credits, shares: Shares, kind: ShareKind
) -> None:
    after = granted(credit, kind, shares, jumped=False)
    for each in (ShareKind.SKIP, ShareKind.FRONT, ShareKind.AGED):
        earned = (
            min(MAX_CREDIT_THOUSANDTHS, credit[each] + shares[each])
            if each <= kind
            else credit[each]
        )
        assert after[each] == earned


def test_a_share_of_all_is_no_cap() -> None:
    broke = Credits(0, 0, 0)
    assert all(may_jump(kind, broke, NO_CAPS) for kind in ShareKind)
    assert picks(HEADS, NO_CAPS, 100) == {ShareKind.SKIP: 100}


def test_without_credit_a_class_goes_only_if_nothing_else_can() -> None:
    broke = Credits(0, 0, 0)
    for kind in (ShareKind.SKIP, ShareKind.FRONT, ShareKind.AGED):
        alone = QueueHeads(*(HEADS[each] if each == kind else None for each in ShareKind))
        choice = choose(alone, broke, Shares())
        assert choice is not None
        assert (choice.candidate.kind, choice.jumped) == (kind, False)
        with_fresh = choose(alone._replace(fresh=HEADS.fresh), broke, Shares())
        assert with_fresh is not None
        assert with_fresh.candidate.kind is ShareKind.FRESH
