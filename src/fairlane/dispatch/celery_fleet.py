"""A Celery fleet as a dispatcher sees it: the broker that takes tasks, the result backend that
tells their states, and the workers that say which tasks they hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from fairlane.background import end_all
from fairlane.errors import SetupError
from fairlane.model.celery_bridge import CeleryBridge
from fairlane.model.service import Service
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.01, 1.0
LOOK_SHARE = 10
"""A task is looked at after a tenth of the time that it has run, within these bounds."""

AWAY_PAUSE_SECONDS = 0.5
ANSWER_SECONDS = 1.0
"""Seconds in which workers must answer a broadcast."""

CHECK_SECONDS = 60.0
"""Seconds between two looks at the settings of the workers."""

SOCKET_SECONDS = 10.0
PUBLISHING_THREADS, ASKING_THREADS = 8, 2
HOLDING = frozenset({"active", "reserved", "scheduled"})

Answers = Mapping[str, Mapping[str, str]]
"""By worker: the tasks that it holds, and whether each is active, reserved or scheduled."""


class Message(NamedTuple):
    """A task to send. Times are seconds."""

    id: str
    task: str
    queue: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any]
    expires: float
    time_limit: float


class FollowedTask(Protocol):
    """A task in flight. `look_at` is when its state is due, by the time of the event loop."""

    id: str
    look_at: float

    def read(self, stored: bytes | None) -> None:
        """The state that the result backend has."""

    def heard(self, answers: Answers) -> None:
        """The answers to one broadcast."""


class Node(NamedTuple):
    """A worker, as its statistics describe it."""

    pool: str = ""
    concurrency: int = 0
    prefetch: int = 0
    queues: frozenset[str] = frozenset()

    @property
    def prefork(self) -> bool:
        return "prefork" in self.pool

    @property
    def answers_while_busy(self) -> bool:
        return bool(self.pool) and "solo" not in self.pool


class CeleryFleet:
    """Use it as `async with`. Celery's clients block, so they run in threads. An error of the
    broker or the backend proves nothing about a task: it is logged once, and the work goes on when
    it is back. `heartbeat` is in microseconds."""

    def __init__(self, bridge: CeleryBridge, services: Sequence[Service], heartbeat: int) -> None:
        self.heartbeat = heartbeat
        self._bridge, self._services = bridge, services
        self._sender, self._reader = _apps(bridge)
        self._connections = self._sender.connection_for_write().Pool(PUBLISHING_THREADS)
        self._tasks: dict[str, FollowedTask] = {}
        self._nodes: dict[str, Node] = {}
        self._said: set[str] = set()
        self._wake, self._check_soon = asyncio.Event(), asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._publishing = ThreadPoolExecutor(PUBLISHING_THREADS, "celery-publish")
        self._reading = ThreadPoolExecutor(1, "celery-results")
        self._asking = ThreadPoolExecutor(ASKING_THREADS, "celery-control")

    async def __aenter__(self) -> CeleryFleet:
        loops = self._read_states(), self._ask_workers(), self._check_workers()
        self._loops = [asyncio.create_task(each) for each in loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_all(self._loops)
        for threads in (self._publishing, self._reading, self._asking):
            threads.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):
            self._connections.force_close_all()
            self._reader.close()

    # --- one task ----------------------------------------------------------------------------
    @contextmanager
    def following(self, task: FollowedTask) -> Iterator[None]:
        """While the block runs, the task hears of its state and of its workers."""
        self._tasks[task.id] = task
        try:
            yield
        finally:
            del self._tasks[task.id]

    def look_soon(self) -> None:
        self._wake.set()

    async def publish(self, message: Message, may_send: Callable[[], bool]) -> bool:
        """Sends the task, if `may_send` still agrees once the broker has answered. Returns whether
        it was sent."""
        sent: bool = await _in(self._publishing, partial(self._publish, message, may_send))
        return sent

    def _publish(self, message: Message, may_send: Callable[[], bool]) -> bool:
        with self._connections.acquire(block=True) as connection:
            connection.ensure_connection(max_retries=1, timeout=SOCKET_SECONDS)
            client = getattr(connection.default_channel, "client", None)
            if client is not None:
                client.ping()  # of Redis: a kept connection may be dead
            if not may_send():
                return False
            self._sender.send_task(
                message.task,
                message.args,
                message.kwargs,
                task_id=message.id,
                queue=message.queue,
                headers=message.headers,
                expires=message.expires,
                time_limit=message.time_limit,
                serializer="json",
                ignore_result=False,
                retry=False,
                producer=self._sender.amqp.Producer(connection, auto_declare=False),
            )
        return True

    async def stored(self, task_id: str) -> bytes | None:
        """The state of one task in the result backend, as stored."""
        found: list[bytes | None] = await _in(self._reading, partial(self._stored, [task_id]))
        return found[0]

    async def revoke(self, task_id: str) -> None:
        """Tells all workers to drop the task, and prefork workers to terminate it."""
        await _in(self._asking, partial(self._revoke, task_id))

    def _revoke(self, task_id: str) -> None:
        prefork = [name for name, node in self._nodes.items() if node.prefork]
        revoke = self._sender.control.revoke
        with self._sender.connection_for_write() as connection:
            revoke(task_id, connection=connection)
            if prefork:
                revoke(task_id, connection=connection, destination=prefork, terminate=True)

    async def ask(self, task_ids: Sequence[str]) -> Answers:
        """Which of these tasks each worker holds. A worker that is not in it did not answer."""
        found = await _in(self._asking, partial(self._inspect, "query_task", *task_ids))
        self.meet(found)
        return {
            node: {task: about[0] for task, about in held.items() if about[0] in HOLDING}
            for node, held in found.items()
            if "error" not in held
        }

    def meet(self, nodes: Iterable[str]) -> None:
        """These workers exist. The settings of new ones are looked at soon."""
        for name in nodes:
            if name not in self._nodes:
                self._nodes[name] = Node()
                self._check_soon.set()

    def can_be_heard(self, node: str) -> bool:
        """Whether a silent worker means something: it has answered before, and also answers while
        it runs tasks."""
        return node in self._nodes and self._nodes[node].answers_while_busy

    # --- states ------------------------------------------------------------------------------
    async def _read_states(self) -> None:
        """Reads the states of all tasks that are due with one request, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            due = [task for task in self._tasks.values() if task.look_at <= now]
            if not due:
                next_look = min((now + 60, *(task.look_at for task in self._tasks.values())))
                with suppress(TimeoutError):
                    async with asyncio.timeout(next_look - now):
                        await self._wake.wait()
                self._wake.clear()
                continue
            try:
                ids = [task.id for task in due]
                states = await _in(self._reading, partial(self._stored, ids))
            except Exception as error:  # noqa: BLE001 - it will be back, and the results with it
                self._say_once("backend", f"the result backend of Celery is away: {error!r}")
                await asyncio.sleep(AWAY_PAUSE_SECONDS)
                continue
            self._said.discard("backend")
            for task, stored in zip(due, states, strict=True):
                task.read(stored)

    def _stored(self, task_ids: Sequence[str]) -> list[bytes | None]:
        backend = self._reader.backend
        return list(backend.mget([backend.get_key_for_task(each) for each in task_ids]))

    # --- workers -----------------------------------------------------------------------------
    async def _ask_workers(self) -> None:
        """Asks the workers which of the tasks in flight they hold, for ever."""
        while True:
            await asyncio.sleep(self.heartbeat / SECOND)
            if not self._tasks:
                continue
            try:
                answers = await self.ask([*self._tasks])
            except Exception as error:  # noqa: BLE001 - no answer is no proof
                self._say_once("broker", f"the broker of Celery is away: {error!r}")
                continue
            self._said.discard("broker")
            for task in [*self._tasks.values()]:
                task.heard(answers)

    async def _check_workers(self) -> None:
        """Looks at the settings of the workers and warns of those that do not fit, for ever."""
        while True:
            try:
                found = await _in(self._asking, self._found_nodes)
                if any(not self._nodes.get(name, Node()).pool for name in found):
                    log.info("Celery workers: %s", ", ".join(sorted(found)))
                self._nodes |= found
                self._warn()
            except Exception as error:  # noqa: BLE001 - only advice
                log.debug("the Celery workers could not be asked: %r", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    CHECK_SECONDS if self._nodes else self.heartbeat / SECOND
                ):
                    await self._check_soon.wait()
            self._check_soon.clear()

    def _found_nodes(self) -> dict[str, Node]:
        stats, queues, conf = map(self._inspect, ("stats", "active_queues", "conf"))
        found = {}
        for name, said in stats.items():
            pool = said.get("pool", {})
            concurrency = int(pool.get("max-concurrency") or 0)
            free = conf.get(name, {}).get("worker_disable_prefetch")
            found[name] = Node(
                str(pool.get("implementation", "")),
                concurrency,
                concurrency if free else int(said.get("prefetch_count") or 0),
                frozenset(each["name"] for each in queues.get(name, ())),
            )
        return found

    def _inspect(self, command: str, *args: Any) -> dict[str, Any]:
        expected = len(self._nodes) if command == "query_task" else None
        # A new connection: kombu leaves a blocking read behind in one that has collected answers.
        with self._sender.connection_for_write() as connection:
            inspect = self._sender.control.inspect(
                timeout=ANSWER_SECONDS, limit=expected or None, connection=connection
            )
            return getattr(inspect, command)(*args) or {}

    def _warn(self) -> None:
        if not self._nodes:
            self._say_once("none", "no Celery worker answers: start one, or check broker_url")
        for service in self._services:
            queue = self._bridge.tasks[service.name].queue
            serving = {name: node for name, node in self._nodes.items() if queue in node.queues}
            places = sum(node.concurrency for node in serving.values())
            if self._nodes and not serving:
                text = f'no Celery worker consumes the queue "{queue}" of {service.name}'
                self._say_once(text, f"{text}: start one with -Q {queue}")
            elif serving and not 0 < service.limit <= places:
                limit = f"its limit is {service.limit}" if service.limit else "it has no limit"
                text = f"{service.name}: {limit}, and its Celery workers run {places} tasks at once"
                advice = "what is more waits in the broker, first in, first out; lower the limit"
                self._say_once(text, f"{text}: {advice}")
            for name, node in serving.items():
                if node.prefetch > node.concurrency:
                    text = f"Celery worker {name} prefetches {node.prefetch} tasks"
                    advice = "set worker_prefetch_multiplier = 1 or worker_disable_prefetch"
                    self._say_once(text, f"{text} for {node.concurrency} places: {advice}")

    def warn_of_untracked_start(self, service: str) -> None:
        text = f"{service}: its Celery workers do not say when a task starts"
        self._say_once(text, f"{text}: set task_track_started = True")

    def _say_once(self, topic: str, text: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            log.warning(text)


async def _in(threads: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def _apps(bridge: CeleryBridge) -> tuple[Any, Any]:
    """One app that sends and one that reads. The sender has no result backend: with one, Celery
    would subscribe to each result."""
    try:
        from celery import Celery
    except ImportError:
        raise SetupError(
            'a service with a celery_task needs Celery: pip install "fairlane[celery]"'
        ) from None
    bounded = {"socket_connect_timeout": SOCKET_SECONDS, "socket_timeout": SOCKET_SECONDS}
    redis = bridge.broker_url.startswith(("redis", "sentinel", "unix"))
    sender = Celery("fairlane", broker=bridge.broker_url, set_as_current=False)
    sender.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_publish_retry=False,
        broker_connection_timeout=SOCKET_SECONDS,
        broker_transport_options={**(bounded if redis else {}), **bridge.broker_transport_options},
    )
    reader = Celery("fairlane", backend=bridge.result_backend, set_as_current=False)
    reader.conf.update(
        accept_content=["json"],
        redis_socket_connect_timeout=SOCKET_SECONDS,
        redis_socket_timeout=SOCKET_SECONDS,
        result_backend_transport_options={**bridge.result_backend_transport_options},
    )
    return sender, reader
