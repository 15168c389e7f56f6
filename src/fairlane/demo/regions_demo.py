"""The regions demo: one service in three regions under a provider's limit. Some users are bound to
regions, and one region goes down from time to time."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from typing import Any

from rich.console import Group, RenderableType

from fairlane.demo import display
from fairlane.demo.demo import Status
from fairlane.demo.processes import LEEWAY
from fairlane.demo.services import SimulatedService
from fairlane.demo.traffic import Outages, Scene, SimulatedProvider, Traffic, scenery
from fairlane.demo.users_demo import UsersDemo
from fairlane.presets import regions

SERVICE = "inference"
HOMES = {"grace": ("EU",), "edsger": ("ASIA",), "barbara": ("US", "EU"), "linus": ("US",)}
"""Where jobs of these users may run. Jobs of the others may run in any region."""

UNRELIABLE_REGION = "EU"
CALL_SECONDS, TIMEOUT_SECONDS = 200, 400


def _request(_: random.Random, user: str) -> dict[str, Any]:
    return {"feature_name": SERVICE, "regions": list(HOMES.get(user, ()))}


TRAFFIC = Traffic(
    _request,
    mean_seconds_between_requests=34,
    work_seconds=dict.fromkeys(regions().services[SERVICE].regions, CALL_SECONDS),
    outages=Outages((UNRELIABLE_REGION,), first=1_200, lasts=1_500, every=3_000),
)


class RegionsDemo(UsersDemo):
    preset = "regions"
    title = "one service in three regions under a provider's limit, seven users"

    def __init__(self, speed: float | None = None) -> None:
        super().__init__(speed)
        (provider,) = regions().providers.values()
        self.provider = SimulatedProvider(provider.name, provider.limit)

    def scenery(self) -> AbstractAsyncContextManager[Scene]:
        """Each region counts its calls, and the provider counts those of all regions."""
        places = regions().services[SERVICE].regions.values()
        services = [SimulatedService(each.name, each.limit) for each in places]
        return scenery(self.speed, TRAFFIC, services, self.provider)

    def variables(self) -> dict[str, str]:
        settings = f"FAIRLANE_SERVICES__{SERVICE.upper()}"
        urls = {f"{settings}__REGIONS__{each.name}__URL": each.url for each in self.scene.services}
        timeout = {f"{settings}__TIMEOUT": str(LEEWAY + TIMEOUT_SECONDS / self.speed)}
        return {**super().variables(), **urls, **timeout}

    def service_status(self, status: Status) -> dict[str, Any]:
        return dict(status.get("regions", {}))

    def tables(self, status: Status) -> RenderableType:
        down = self.scene.down
        away = f" {down} is down: free jobs run elsewhere, jobs bound to it wait." if down else ""
        homes = {user: " or ".join(names) for user, names in HOMES.items()}
        return Group(
            display.services(self.scene, self.service_status(status), "region"),
            display.people(self.scene, homes),
            display.note(
                "no region and no provider has more calls than slots; jobs that may run anywhere "
                f"go to the least loaded region.{away}"
            ),
        )

    def line(self, status: Status, seconds: float) -> str:
        moved = self.scene.moved
        told = f"; {moved} moved to another region" if moved else ""
        return super().line(status, seconds) + told

    def incident_line(self) -> str:
        provider, scene = self.provider, self.scene
        return (
            f"{UNRELIABLE_REGION} was down {display.times(scene.outages)}, "
            f"{scene.moved} retries moved to another region; "
            f"{provider.name} had at most {provider.most} of {provider.limit} calls at once"
        )
