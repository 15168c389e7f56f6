"""Presets: ready-made tiers, services and pipelines to start from."""

from __future__ import annotations

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Executor, Fairness, Provider, Region, RetryPlace, Service
from fairlane.model.tier import Tier, Tiers

DEFAULT_ATTEMPTS = 3


def tasks() -> Catalog:
    """Tasks that workers pull: any task type, three tiers, first come first served."""
    tiers = Tiers(
        [
            Tier("high", max_retries=5, timeout=300, target=30),
            Tier("medium", {"high": 1200}, max_retries=3, timeout=600, target=600),
            Tier("low", {"medium": 600, "high": 1800}, max_retries=2, timeout=900, target=3600),
        ],
        default="medium",
    )
    return Catalog(tiers, task_defaults=Service("task", fairness=Fairness.NONE))


def gateway() -> Catalog:
    """Pipelines over four limited services, shared fairly between users."""
    tiers = Tiers(
        [
            Tier("high", max_retries=5, timeout=300, target=30),
            Tier("medium", {"high": 3600}, max_retries=3, timeout=600, target=600),
            Tier("low", {"medium": 1800, "high": 3600}, max_retries=2, timeout=900, target=3600),
        ],
        default="medium",
    )
    services = [
        _called("prompt_enhancer", limit=5, timeout=150),
        _called("fast_chat_llm", limit=4, timeout=240),
        _called("image_gen", limit=1, timeout=400),
        _called("model_3d_gen", limit=1, timeout=480),
    ]
    names = tuple(service.name for service in services)
    return Catalog(tiers, services, pipelines={"full_pipeline": names, "text_only": names[:2]})


def generation() -> Catalog:
    """A generation queue with paying tiers, quotas and one GPU."""
    quotas = {
        "creator": (20, 60, 180, 45),
        "premium": (10, 30, 120, 60),
        "supporter": (5, 15, 60, 90),
        "free": (2, 3, 30, 120),
    }
    tiers = Tiers(
        [
            Tier("admin", {"admin": 30}, target=30),
            *(
                Tier(
                    name,
                    {"admin": patience},
                    pending=pending,
                    per_hour=per_hour,
                    max_duration=longest,
                    target=patience,
                )
                for name, (pending, per_hour, longest, patience) in quotas.items()
            ),
        ],
        default="free",
    )
    service = Service("generate", limit=1, fairness=Fairness.NONE)
    limits = Limits(waiting=100, keep_finished=3600, cleanup_interval=300, lowest_tier_share=1)
    return Catalog(tiers, [service], limits=limits)


def regions() -> Catalog:
    """One service in three regions under a provider's limit, with failover."""
    tiers = gateway().tiers
    inference = Service(
        "inference",
        executor=Executor.HTTP,
        provider="modal",
        regions={name: Region(name, limit=4) for name in ("US", "EU", "ASIA")},
        max_attempts=DEFAULT_ATTEMPTS,
        backoff=(60, 120, 180),
        retry_place=RetryPlace.FRONT,
        failover=True,
    )
    return Catalog(tiers, [inference], [Provider("modal", limit=10)])


PRESETS = {
    "tasks": tasks,
    "gateway": gateway,
    "generation": generation,
    "regions": regions,
}


def _called(name: str, *, limit: int, timeout: float) -> Service:
    return Service(
        name, executor=Executor.HTTP, limit=limit, timeout=timeout, max_attempts=DEFAULT_ATTEMPTS
    )
