"""The gateway demo: four scarce services that are called, and seven users in three tiers."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from typing import Any

from rich.console import Group, RenderableType

from fairlane.demo import display
from fairlane.demo.demo import Status
from fairlane.demo.services import SimulatedService
from fairlane.demo.traffic import Outages, Scene, Traffic, scenery
from fairlane.demo.users_demo import UsersDemo
from fairlane.doctor.words import count
from fairlane.presets import gateway

SERVICE_SECONDS = {
    "prompt_enhancer": 90,
    "fast_chat_llm": 150,
    "image_gen": 330,
    "model_3d_gen": 390,
}


def _request(chance: random.Random, _: str) -> dict[str, Any]:
    return {"feature_name": chance.choices(("text_only", "full_pipeline"), (9, 1))[0]}


TRAFFIC = Traffic(
    _request,
    mean_seconds_between_requests=50,
    work_seconds=SERVICE_SECONDS,
    outages=Outages(tuple(SERVICE_SECONDS), first=5_000, lasts=1_000, every=5_000),
    spurious_503_rate=0.02,
    pipelines=gateway().pipelines,
)


class GatewayDemo(UsersDemo):
    preset = "gateway"
    title = "four scarce services, seven users"

    def scenery(self) -> AbstractAsyncContextManager[Scene]:
        services = [SimulatedService(each.name, each.limit) for each in gateway().services.values()]
        return scenery(self.speed, TRAFFIC, services)

    def variables(self) -> dict[str, str]:
        urls = {
            f"FAIRLANE_SERVICES__{each.name.upper()}__URL": each.url for each in self.scene.services
        }
        return {**super().variables(), **urls}

    def tables(self, status: Status) -> RenderableType:
        down = self.scene.down
        away = f" {down} is away: see it closed, probed and opened." if down else ""
        return Group(
            display.services(self.scene, self.service_status(status)),
            display.people(self.scene),
            display.note(
                "no service has more calls than slots; high waits least; bulk's floods do not "
                f"hold up linus.{away}"
            ),
        )

    def incident_line(self) -> str:
        hiccups, outages = self.scene.hiccups, self.scene.outages
        return f"{count(hiccups, 'hiccup')} and {count(outages, 'outage')} got over"
