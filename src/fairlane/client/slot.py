"""A slot of a limited service that the caller holds while it makes its own call."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from fairlane.background import end
from fairlane.client.errors import ApiError, Unreachable
from fairlane.ids import token

if TYPE_CHECKING:
    from fairlane.client.portal import Portal
    from fairlane.responses import SlotResponse

WAIT_SECONDS = 20.0
RETRY_PAUSE_SECONDS = 0.5
GIVE_BACK_SECONDS = 5.0
LATER = frozenset({408, 429, 500, 502, 503, 504})


class Slot:
    """`async with slot("image_gen", user="ada"):` or `with …`: inside the block the caller holds
    one of the service's slots. The request waits in the queue like any job. `lost` turns true if
    the queue took the slot back; then stop the call."""

    def __init__(
        self,
        service: str,
        *,
        user: str | None = None,
        priority: str | None = None,
        model: str = "",
        url: str | None = None,
        key: str | None = None,
    ) -> None:
        from fairlane.client.connection import ApiConnection

        wish = {"service": service, "user_id": user, "priority": priority, "model": model}
        self._wish = {name: value for name, value in wish.items() if value}
        self._connection = ApiConnection(url, key)
        self._keeping: asyncio.Task[None] | None = None
        self._lease = ""
        self._lasts = 15.0
        self._portal: Portal
        self.slot_id = ""
        self.lost = False

    async def __aenter__(self) -> Slot:
        try:
            await self._take()
        except BaseException:
            with anyio.move_on_after(GIVE_BACK_SECONDS, shield=True):  # also after Ctrl-C
                await self._give_back()
            raise
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def _give_back(self) -> None:
        try:
            with suppress(ApiError, Unreachable):
                if self.slot_id:
                    await self._connection.call("DELETE", f"/api/v1/jobs/{self.slot_id}")
        finally:
            await self._connection.close()

    async def __aexit__(self, *_: object) -> None:
        await end(self._keeping)
        with suppress(ApiError, Unreachable):  # its lease will expire
            await self._say("release")
        await self._connection.close()

    def __enter__(self) -> Slot:
        from fairlane.client.portal import Portal

        self._portal = Portal()
        try:
            self._portal.run(self.__aenter__)
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.run(self.__aexit__)
        self._portal.close()

    async def _take(self) -> None:
        sent = {**self._wish, "wait_seconds": WAIT_SECONDS}
        headers = {"Idempotency-Key": token()}
        while True:
            if self.slot_id:
                sent["slot_id"] = self.slot_id
            try:
                answer: SlotResponse = await self._connection.call(
                    "POST", "/api/v1/slots", sent, headers=headers, patience=WAIT_SECONDS + 15
                )
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.status not in LATER:
                    raise
                await asyncio.sleep(random.uniform(RETRY_PAUSE_SECONDS, 2 * RETRY_PAUSE_SECONDS))
                continue
            self.slot_id, self._lasts = answer["slot_id"], answer["lease_seconds"]
            if answer["lease"] is not None:
                self._lease = answer["lease"]
                return
            if answer["status"] != "queued":
                code = f"slot_{answer['status']}"
                raise ApiError(409, code, f"the slot is {answer['status']}", answer)

    async def _keep(self) -> None:
        while not self.lost:
            await asyncio.sleep(self._lasts / 3)
            try:
                await self._say("renew")
            except Unreachable:
                continue
            except ApiError as error:
                self.lost = error.status not in LATER

    async def _say(self, verb: str) -> None:
        path = f"/api/v1/slots/{self.slot_id}/{verb}"
        await self._connection.call("POST", path, {"lease": self._lease})


slot = Slot
"""The name that callers use: `with fairlane.slot("image_gen"):`."""
