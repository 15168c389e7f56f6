"""Histogram of waits: how many jobs waited how long, in buckets of a constant ratio, and its
quantiles. Two histograms are added bucket by bucket, so several processes can share one."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

SMALLEST_MICROSECONDS = 1_000
"""Waits up to 1 ms are in bucket 0."""

BUCKETS_PER_DOUBLING = 4
"""The bound of a bucket is 19 % above that of the one before."""

MAX_BUCKET = 128
"""The last bucket: waits of 50 days and more."""


def bucket_of(wait: int) -> int:
    """The bucket of a wait (µs)."""
    if wait <= SMALLEST_MICROSECONDS:
        return 0
    found = int(log2(wait / SMALLEST_MICROSECONDS) * BUCKETS_PER_DOUBLING) + 1
    return min(found, MAX_BUCKET)


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
