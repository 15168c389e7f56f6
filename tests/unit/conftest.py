"""How hard Hypothesis tries here: enough to find things, quick enough to run all the time, and
never failing because the machine is busy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    max_examples=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")
