"""The model cache of a worker: what it tells the queue of its model."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlane.worker.models import Models
from fairlane.worker_protocol.messages import LoadedModel


async def test_a_model_that_is_loading_is_told_before_it_is_there() -> None:
    """With capacity for two tasks, the queue must know what the worker is about to have."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def load(name: str) -> str:
        begun.set()
        await go_on.wait()
        return name.upper()

    with ThreadPoolExecutor(1) as threads:
        models = Models(load, threads)
        assert models.told() is None
        first = asyncio.create_task(models.get("flux"))
        await begun.wait()
        second = asyncio.create_task(models.get("flux"))
        await asyncio.sleep(0)
        assert without_age(models.told()) == ("flux", 2)
        go_on.set()
        (made, seconds), (again, nothing) = await first, await second
    assert (made, again) == ("FLUX", "FLUX")
    assert seconds is not None
    assert nothing is None


async def test_a_model_that_could_not_be_loaded_is_not_told() -> None:
    def load(name: str) -> str:
        if name == "broken":
            raise OSError("no such file")
        return name

    with ThreadPoolExecutor(1) as threads:
        models = Models(load, threads)
        await models.get("flux")
        with pytest.raises(OSError, match="no such file"):
            await models.get("broken")
    assert without_age(models.told()) == ("flux", 0)


def without_age(told: LoadedModel | None) -> tuple[str, int]:
    assert told is not None
    assert told.load == 0
    assert told.age is not None
    return told.name, told.tasks
