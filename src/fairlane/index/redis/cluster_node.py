"""Redis Cluster: all keys share one hash slot, so one primary holds the index. Each connection asks
the cluster for that primary when it connects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio.connection import Connection, SSLConnection
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError


class NodeAddress(NamedTuple):
    host: str
    port: int


class ClusterConnection(Connection):
    """Connects to the primary that serves the slot of `key`. `nodes` are some nodes of the cluster;
    the first that answers is asked."""

    def __init__(self, *, nodes: Sequence[NodeAddress], key: str, **options: Any) -> None:
        super().__init__(**options)
        self._nodes, self._slot, self._options = nodes, key_slot(key.encode()), options

    async def _connect(self) -> None:
        self.host, self.port = await self._primary()
        await super()._connect()  # type: ignore[no-untyped-call]

    async def _primary(self) -> NodeAddress:
        errors = []
        for node in self._nodes:
            try:
                return _primary_of(self._slot, await self._slots_at(node), node)
            except (RedisError, OSError) as error:
                errors.append(f"{node.host}:{node.port}: {error}")
        raise RedisConnectionError(f"no node of the cluster answers: {'; '.join(errors)}")

    async def _slots_at(self, node: NodeAddress) -> list[Any]:
        connection = self._plain_class(**{**self._options, "host": node.host, "port": node.port})
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_command("CLUSTER", "SLOTS")
            found: list[Any] = await connection.read_response()
            return found
        finally:
            await connection.disconnect(nowait=True)

    _plain_class: type[Connection] = Connection


class ClusterTlsConnection(ClusterConnection, SSLConnection):
    _plain_class = SSLConnection


def _primary_of(slot: int, ranges: list[Any], asked: NodeAddress) -> NodeAddress:
    """From an answer to CLUSTER SLOTS. A node that does not know its own host leaves it empty."""
    for first, last, primary, *_ in ranges:
        if first <= slot <= last:
            host = primary[0].decode() if primary[0] else asked.host
            return NodeAddress(host, int(primary[1]))
    raise RedisConnectionError(f"no node of the cluster serves the slot {slot}")
