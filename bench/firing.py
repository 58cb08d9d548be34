"""What schedules cost: many that wait, and some that fire each second.

Owns: the rows schedules-idle-cpu and schedules-firing. Must not know: how other rows are measured.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import msgspec
import uvloop

from bench.load import Connection, LoadFailed, connect, queue_request, request
from bench.machine import cpu_s
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

WAITING = 99_000
FIRING = 1000
CONNECTIONS = 32
TOPIC = "bench"
IDLE_CORES_MAX = 0.01


def schedules(session: Session) -> list[Row]:
    """Processor time of many schedules that wait, and of a firing."""
    idle = Row(
        "schedules-idle-cpu",
        f"processor time of {WAITING:,} waiting schedules, over that without them",
        "cores",
        Target(IDLE_CORES_MAX, at_most=True),
    )
    firing = Row("schedules-firing", "processor time of one firing of a schedule", "µs")
    with session.server() as server:
        cores, micros = uvloop.run(_cost(server, session))
    idle.values.append(cores)
    firing.values.append(micros)
    session.tell(f"  schedules: {cores:.4f} cores at rest, {micros:.0f} µs per firing")
    return [idle, firing]


async def _cost(server: DemoServer, session: Session) -> tuple[float, float]:
    made = await connect(server.address, CONNECTIONS)
    share = min(session.scale.seconds, 1.0) ** 2
    idle_s = session.scale.seconds * 5
    await made[0].call(queue_request(TOPIC))
    await asyncio.sleep(session.scale.settle_s)
    alone = await _cores(server, idle_s)
    # Once in four years: it waits.
    await _put(made, max(int(WAITING * share), 100), "w", {"cron": "0 0 29 2 *"})
    await asyncio.sleep(session.scale.settle_s * 5)
    waiting = await _cores(server, idle_s)
    count = max(int(FIRING * share), 20)
    await _put(made, count, "f", {"every_ms": 1000})
    fired, spent = await _fired(made[0]), cpu_s(server.pid)
    await asyncio.sleep(max(session.scale.seconds * 3, 1.2))
    micros = (cpu_s(server.pid) - spent) * 1e6 / max(await _fired(made[0]) - fired, 1)
    for connection in made:
        connection.close()
    return max(waiting - alone, 0.0), micros


async def _put(made: list[Connection], count: int, prefix: str, times: dict[str, object]) -> None:
    body = msgspec.json.encode({"topic": TOPIC, "record": {"data": {"a": 1}}, **times})

    async def put(connection: Connection, first: int) -> None:
        for number in range(first, count, len(made)):
            path = f"/v0/schedules/{prefix}{number}?next=0"
            reply = await connection.call(request("PUT", path, body))
            if b'"created":true' not in reply:
                raise LoadFailed(f"no schedule: {reply!r}")

    await asyncio.gather(*(put(connection, first) for first, connection in enumerate(made)))


async def _fired(connection: Connection) -> int:
    reply = await connection.call(request("GET", f"/v0/topics/{TOPIC}"))
    return int(msgspec.json.decode(reply)["head_seq"])


async def _cores(server: DemoServer, seconds: float) -> float:
    before, began = cpu_s(server.pid), perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_s(server.pid) - before) / (perf_counter() - began)
