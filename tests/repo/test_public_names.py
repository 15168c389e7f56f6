"""What `import fairlane` offers. A name that appears here stays."""

import fairlane

NAMES = [
    "ApiError",
    "AsyncClient",
    "Caller",
    "Catalog",
    "Client",
    "Context",
    "CreditSettings",
    "Done",
    "Engine",
    "Failed",
    "FairlaneError",
    "Fault",
    "FileResult",
    "Filter",
    "GivenBack",
    "JobCancelled",
    "JobDead",
    "JobFailed",
    "JobRequest",
    "Limits",
    "NewJob",
    "Provider",
    "Region",
    "Service",
    "State",
    "TaskFailed",
    "Tier",
    "Tiers",
    "Worker",
    "WorkerSpec",
    "embedded",
    "slot",
]


def test_the_public_names_are_these() -> None:
    assert fairlane.__all__ == NAMES


def test_every_public_name_is_there() -> None:
    assert all(hasattr(fairlane, name) for name in NAMES)
