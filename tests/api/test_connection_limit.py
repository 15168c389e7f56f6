"""S13: more connections than `server.connections`."""

from __future__ import annotations

from fairlane.config.settings import ServerSettings
from tests.api.raw import Answer, exchange
from tests.api.server import gateway
from tests.world import World

JOB = b'{"service": "work"}'
SUBMIT = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d" % len(JOB)
)


def said(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code"]


async def test_one_connection_too_many_is_sent_away_unless_it_makes_room(world: World) -> None:
    async with (
        gateway(world.engine, ServerSettings(connections=1)) as served,
        served.client() as client,
    ):
        assert (await client.get("/livez")).status_code == 200
        refused = await exchange(served.port, b"GET /queue/status HTTP/1.1\r\nHost: localhost")
        assert said(refused) == (503, "too_many_connections")
        assert 4 <= int(refused.headers["retry-after"]) <= 6
        assert refused.headers["connection"] == "close"
        assert said(await exchange(served.port, SUBMIT, JOB)) == (503, "too_many_connections")
        for request in (b"DELETE /api/v1/jobs/none", b"POST /internal/workers/me/poll"):
            passed = await exchange(served.port, request + b" HTTP/1.1\r\nHost: localhost")
            assert said(passed) != (503, "too_many_connections")
        alive = await exchange(served.port, b"GET /livez HTTP/1.1\r\nHost: localhost")
        assert (alive.status, alive.headers["connection"]) == (200, "close"), "nor does it stay"
