"""Histogram of waits: how many jobs waited how long, in buckets of a constant ratio, and its
quantiles. Two histograms are added bucket by bucket, so several processes can share one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil

SMALLEST_MICROSECONDS = 1_000
"""Waits up to 1 ms are in bucket 0."""

BUCKETS_PER_DOUBLING = 4
"""The bound of a bucket is 19 % above that of the one before."""

MAX_BUCKET = 128
"""The last bucket: waits of 50 days and more."""

BOUNDS = (
    SMALLEST_MICROSECONDS + 1,
    *(ceil(SMALLEST_MICROSECONDS * 2 ** (n / BUCKETS_PER_DOUBLING)) for n in range(1, MAX_BUCKET)),
)
"""The shortest wait (µs) of each bucket from 1 on."""


def bucket_of(wait: int) -> int:
    """The bucket of a wait (µs)."""
    return bisect_right(BOUNDS, wait)


def quantile(buckets: Mapping[int, int], part: float) -> float | None:
    """The wait (seconds) that this part of all jobs did not exceed, within 10 %. None without a
    job."""
    total = sum(buckets.values())
    if total <= 0:
        return None
    rank, seen = part * total, 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            break
    else:
        return None
    if bucket == 0:
        return 0.0
    middle = SMALLEST_MICROSECONDS * 2 ** ((bucket - 0.5) / BUCKETS_PER_DOUBLING)
    return middle / 1_000_000
