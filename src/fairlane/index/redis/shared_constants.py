"""Constants shared with the Lua scripts: numbers of policy/, model/ and index.py that every index
must agree on. Scripts use them by these names."""

from __future__ import annotations

from fairlane.index import index
from fairlane.model.job import Band
from fairlane.model.service import Service
from fairlane.policy import affinity, aging, circuit_breaker, estimate, shares
from fairlane.units import SECOND

DEFAULTS = Service("any")
"""The settings of a service that is no longer configured."""

SHARED_CONSTANTS = {
    "LOAD_SHARE_THOUSANDTHS": affinity.LOAD_SHARE_THOUSANDTHS,
    "MIN_LOAD_THOUSANDTHS": affinity.MIN_LOAD_THOUSANDTHS,
    "MAX_COMPARED_MODELS": affinity.MAX_COMPARED_MODELS,
    "MAX_MODEL_SLOTS": affinity.MAX_MODEL_SLOTS,
    "RESERVE_AFTER_PATIENCES": aging.RESERVE_AFTER_PATIENCES,
    "OPEN_AFTER_FAILURES": circuit_breaker.OPEN_AFTER_FAILURES,
    "FIRST_DELAY_MICROSECONDS": circuit_breaker.FIRST_DELAY_MICROSECONDS,
    "MAX_DELAY_MICROSECONDS": circuit_breaker.MAX_DELAY_MICROSECONDS,
    "FIRST_LOAD_MICROSECONDS": round(DEFAULTS.model_load * SECOND),
    "ALPHA_THOUSANDTHS": estimate.ALPHA_THOUSANDTHS,
    "MAX_AVERAGES": estimate.MAX_AVERAGES,
    "GRANT_THOUSANDTHS": shares.GRANT_THOUSANDTHS,
    "MAX_CREDIT_THOUSANDTHS": shares.MAX_CREDIT_THOUSANDTHS,
    "DEFAULT_SKIP_SHARE": DEFAULTS.shares.skip,
    "DEFAULT_FRONT_SHARE": DEFAULTS.shares.front,
    "DEFAULT_AGED_SHARE": DEFAULTS.shares.aged,
    "DEFAULT_BATCH_SIZE": DEFAULTS.batch_size,
    "SKIP": Band.SKIP.value,
    "FRONT": Band.FRONT.value,
    "TIER": Band.TIER.value,
    "EXACT_POSITIONS": index.EXACT_POSITIONS,
    "FEW_FLOWS_EXAMINED": index.FEW_FLOWS_EXAMINED,
    "LOOK_AGAIN_MICROSECONDS": index.LOOK_AGAIN_MICROSECONDS,
    "MAX_DUE_JOBS_PER_CLAIM": index.MAX_DUE_JOBS_PER_CLAIM,
    "RESERVATION_MICROSECONDS": index.RESERVATION_MICROSECONDS,
    "ACCOUNT_RETENTION_MICROSECONDS": index.ACCOUNT_RETENTION_MICROSECONDS,
    "MAX_REMEMBERED_LOADS": index.MAX_REMEMBERED_LOADS,
}
