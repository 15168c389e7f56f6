"""The index in Redis hands out the jobs that the index in memory hands out, for long."""

from __future__ import annotations

from itertools import count, cycle

import pytest

from fairlane.servers import Redis
from tests.index.test_same_order import Crowd, Life, ManyModels

CLAIMS = 10_000
KINDS = ((Life, 300), (ManyModels, 300), (Life, 300), (Crowd, 75))
"""Lives of both indexes, and how many steps they have. Two of Life, as every other one of them has
no slots."""


@pytest.mark.long
async def test_both_hand_out_the_same_jobs_in_ten_thousand_claims(
    own_redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random lives with skips, retries, delays, cancels, pools, regions, models, batches and
    idle workers. A claim that differs fails the test and names itself; the seeds are always the
    same."""
    claims = served = jobs = lives = 0
    for seed, (kind, steps) in zip(count(10_000), cycle(KINDS), strict=False):
        life = kind(seed, own_redis.url)
        await life.live(steps)
        claims, served, jobs = claims + life.claims, served + life.served, jobs + life.claimed
        lives += 1
        if claims >= CLAIMS:
            break
    with capsys.disabled():
        print(f"\n{claims} claims of {lives} lives alike; {served} got {jobs} jobs", end=" ")
    assert claims >= CLAIMS
    assert served > CLAIMS / 4, "most of what is alike must not be that there is nothing"
