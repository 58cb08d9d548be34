"""Nothing is left of a request, however it ends: each operation, many times, with every way to end.

A whole server runs in the loop of the test, with its real protocol; after each round all containers
that can be reached from it, and its timers and tasks, are as large as before.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from logqueue.server.engine.worker_registry import NODES_MAX
from logqueue.server.http.routing import MATCHES_MAX
from logqueue.server.serve import _bind, _Server
from logqueue.server.settings import Settings
from tests.effort import scaled
from tests.server.holding import grown, sizes

ROUNDS = scaled(short=25, thorough=2000)
AT_ONCE = 20
SLACK = ROUNDS // 2
"""How much may come and go by chance; what leaks grows by at least one for each round."""
CYCLE_ROUNDS = scaled(short=3, thorough=200)
BOUNDED = {
    "RouteTable._matched": MATCHES_MAX,
    "Histogram.counts": 4096,  # one histogram for each route and method
    "Workers._nodes": NODES_MAX,
    "Observed": NODES_MAX,
    "RecordTexts._sections": 4096,  # by bytes
    "array": 14_400,  # the history of a topic
    "Durations._ring": 1024,
    "StatsHistory._due": 2 * 64,
    "TagIndex._new": 2048,
    "TagIndex._seqs": 2048,
}
"""Memories with a size of their own, and that size."""


class Place:
    """A server, and whoever talks to it."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.address = server.bound.getsockname()[:2]
        self.seconds = 0.0
        server.service.watch_sessions._now_s = lambda: self.seconds

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection."""
        return await asyncio.open_connection(*self.address)

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        """A request on a connection of its own, and the body of its reply."""
        reader, writer = await self.connect()
        writer.write(request(method, path, body, "connection: close\r\n"))
        reply = await reader.read()
        writer.close()
        return reply.partition(b"\r\n\r\n")[2]

    async def rest(self) -> None:
        """Until everybody who hung up is noticed, and nothing is held back."""
        service, server = self.server.service, self.server.http.server_state
        barrier = service.barrier
        assert barrier is not None
        for _ in range(2000):
            await asyncio.sleep(0.001)
            if not (server.connections or server.tasks or barrier.waiting or service.streams):
                break
        # Tidying, and what is kept for a time.
        engine = service.engine
        assert engine is not None
        for _ in engine.tidy():
            pass
        await self.server.runtime.stats.second()
        self.seconds += 1000
        service.watch_sessions.forget_expired()

    def holds(self) -> Counter[str]:
        """The sizes of everything."""
        loop = asyncio.get_running_loop()
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        server = self.server
        roots = [server.service, server.runtime.metrics, server.http.server_state]
        found = sizes([*roots, server.http.config.loaded_app, timers])
        found["tasks"] = len(asyncio.all_tasks())
        return found


def request(method: str, path: str, body: object = None, headers: str = "") -> bytes:
    """The bytes of a request."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} /v0/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}"
    if body is not None:
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


@asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    """A server of this loop."""
    logger = logging.getLogger("logqueue")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(port=0, data_dir=str(Path(directory) / "data"))
        with _bind(settings) as bound:
            server = _Server(settings, bound, set_damage_aside=False)
            task = asyncio.create_task(server.http.serve(sockets=[bound]))
            assert await server._recover()
            place = Place(server)
            try:
                yield place
            finally:
                await server._stop(task)
                logger.setLevel(level)


JOB = {"records": [{"data": 1, "tag": "t"}]}
OPERATIONS: dict[str, tuple[str, str, object]] = {
    "append": ("POST", "topics/q", JOB),
    "append keyed": ("POST", "topics/q", {"records": [{"data": 1, "key": "k", "delay_ms": 9}]}),
    "append ephemeral": ("POST", "topics/e", JOB),
    "diff": ("POST", "topics/log/diff", {"limit": 1}),
    "diff that waits": ("POST", "topics/log/diff", {"from_seq": 1, "wait_ms": 1}),
    "diff that waits long": ("POST", "topics/log/diff", {"from_seq": 1, "wait_ms": 30_000}),
    "claim": ("POST", "topics/q/claim", {"node": "w", "lease_ms": 100}),
    "claim that waits": ("POST", "topics/empty/claim", {"node": "w", "wait_ms": 1}),
    "claim that waits long": ("POST", "topics/empty/claim", {"node": "w", "wait_ms": 30_000}),
    "claim in a cohort": ("POST", "topics/cohort/claim", {"node": "w"}),
    "ack": ("POST", "topics/q/ack", {"node": "w", "seqs": [1]}),
    "nack": ("POST", "topics/q/nack", {"node": "w", "seqs": [1], "delay_ms": 1}),
    "reject": ("POST", "topics/q/reject", {"node": "w", "seqs": [1]}),
    "extend": ("POST", "topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": 100}),
    "delete": ("POST", "topics/q/delete", {"match": "t"}),
    "purge": ("POST", "topics/q/purge", {"states": ["ready", "delayed"]}),
    "redrive": ("POST", "topics/log/redrive", {"dry_run": True}),
    "release": ("POST", "topics/q/release", {"seqs": [1]}),
    "pause": ("POST", "topics/empty/pause", None),
    "put": ("PUT", "topics/empty", {"type": "queue"}),
    "ensure": ("POST", "topics/empty/ensure", {"type": "queue", "ttl_ms": 5}),
    "state": ("GET", "topics/q", None),
    "list": ("GET", "topics?prefix=q", None),
    "jobs": ("GET", "topics/q/jobs", None),
    "job": ("GET", "topics/one/jobs/1", None),
    "workers": ("GET", "topics/q/workers", None),
    "work": ("GET", "topics/one/work?node=w", None),
    "work without jobs": ("GET", "topics/empty/work?node=w", None),
    "watch": ("POST", "watch", {"topics": {"log": {}}}),
    "router": ("PUT", "routers/r", {"source": "log", "dest": "copy"}),
    "segments": ("GET", "log/segments", None),
    "segment": ("GET", "log/segments/jobs-1", None),
    "metrics": ("GET", "metrics", None),
    "history": ("GET", "topics/q/history", None),
    "live feed": ("GET", "stats/stream", None),
    "nothing": ("GET", "nothing", None),
    "malformed": ("POST", "topics/q/claim", ["no object"]),
}

Ending = Callable[[Place, str, str, object], Awaitable[object]]


async def answered(place: Place, method: str, path: str, body: object) -> None:
    """The reply is read, or its beginning where it has no end, or takes its time."""
    reader, writer = await place.connect()
    writer.write(request(method, path, body))
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(99), 0.01 if "30000" in str(body) else 5)
    writer.close()


async def hung_up(place: Place, method: str, path: str, body: object) -> None:
    """The client goes as soon as it has sent all."""
    _, writer = await place.connect()
    writer.write(request(method, path, body))
    await writer.drain()
    await asyncio.sleep(0)
    writer.transport.abort()


async def broken_off(place: Place, method: str, path: str, body: object) -> None:
    """The client goes within the request."""
    _, writer = await place.connect()
    writer.write(request(method, path, body)[:-2])
    await writer.drain()
    await asyncio.sleep(0)
    writer.transport.abort()


async def failed(place: Place, method: str, path: str, body: object) -> None:
    """The same about a topic that is not there."""
    for name in ("/q", "/log", "/empty", "/one", "/e", "/cohort"):
        path = path.replace(f"topics{name}", "topics/-absent")
    await answered(place, method, path, body)


async def went_away(place: Place, method: str, path: str, body: object) -> None:
    """What it is about is deleted meanwhile."""
    names = {"topics/empty": "queue", "topics/cohort": "queue", "topics/log": "log"}
    name = next((name for name in names if path.startswith(name)), None)
    if name is None or method == "PUT":
        return
    # One name per operation: names that were never heard of before are remembered for a time.
    gone = f"topics/gone-{method}-{path.split('?')[0].replace('/', '-')}"
    await place.call("PUT", gone, {"type": names[name], "durability": "memory"})
    reader, writer = await place.connect()
    writer.write(request(method, path.replace(name, gone), body))
    await asyncio.sleep(0.001)
    await place.call("DELETE", gone)
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(99), 1)
    writer.close()


async def set_up(place: Place) -> None:
    """Topics for all operations."""
    for name, config in (
        ("q", {"type": "queue", "durability": "memory", "cap_records": 8}),
        ("e", {"durability": "ephemeral", "cap_records": 8}),
        ("empty", {"type": "queue"}),
        ("one", {"type": "queue", "durability": "memory"}),
        ("cohort", {"type": "queue", "claim_jitter_ms": 1, "durability": "memory"}),
        ("log", {"durability": "memory"}),
    ):
        await place.call("PUT", f"topics/{name}", config)
    await place.call("POST", "topics/log", JOB)
    await place.call("POST", "topics/one", JOB)


async def repeat(call: Callable[[], Awaitable[object]], times: int) -> None:
    """Make a call many times, some at once."""
    for start in range(0, times, AT_ONCE):
        await asyncio.gather(*(call() for _ in range(min(AT_ONCE, times - start))))


async def leaks(
    place: Place, *calls: Callable[[], Awaitable[object]]
) -> dict[str, tuple[int, int]]:
    """What has grown after calls were made many times."""
    for call in calls:
        await repeat(call, AT_ONCE)
    await place.rest()
    before = place.holds()
    for call in calls:
        await repeat(call, ROUNDS)
    await place.rest()
    found = grown(before, place.holds(), SLACK)
    return {where: at for where, at in found.items() if at[1] > BOUNDED.get(where, 0)}


@pytest.mark.parametrize("ending", [answered, hung_up, broken_off, failed, went_away])
def test_nothing_is_left_of_requests(ending: Ending) -> None:
    async def main() -> dict[str, tuple[int, int]]:
        async with serving() as place:
            await set_up(place)
            calls = [partial(ending, place, *operation) for operation in OPERATIONS.values()]
            return await leaks(place, *calls)

    assert asyncio.run(main()) == {}


# -- what lives longer than a request ------------------------------------------------------------

_numbers = count()


async def topics_lives(place: Place) -> None:
    """A queue with all a queue may have, and a router, are made, used and deleted."""
    name = f"t{next(_numbers)}"
    config = {"type": "queue", "durability": "memory", "retry_backoff": {"kind": "linear"}}
    await place.call("PUT", f"topics/{name}", {**config, "archive": "archive"})
    await place.call("PUT", f"routers/{name}", {"source": name, "dest": f"{name}.copy"})
    records = [{"data": i, "key": f"k{i}", "ttl_ms": 60_000, "tag": "t"} for i in range(4)]
    write = {"records": records, "idempotency_key": "once"}
    await place.call("POST", f"topics/{name}", write)
    await place.call("POST", f"topics/{name}", {"records": [{"data": 1, "delay_ms": 60_000}]})
    await place.call("POST", f"topics/{name}/claim", {"node": name, "max": 3})
    await place.call("POST", f"topics/{name}/nack", {"node": name, "seqs": [1], "error": "x"})
    await place.call("POST", f"topics/{name}/ack", {"node": name, "seqs": [2]})
    for path in (name, f"{name}.copy"):
        await place.call("DELETE", f"topics/{path}")


async def jobs_lives(place: Place) -> None:
    """Jobs come and go in a queue that stays."""
    node = f"n{next(_numbers)}"
    write = {"records": [{"data": 1, "tag": node, "key": node}, {"data": 2, "delay_ms": 1}]}
    await place.call("POST", "topics/busy", write)
    claimed = json.loads(await place.call("POST", "topics/busy/claim", {"node": node, "max": 9}))
    seqs = [job["$seq"] for job in claimed["claimed"]]
    for verb in ("nack", "extend", "reject", "ack"):
        body = {"node": node, "seqs": seqs[:1], "lease_ms": 1000}
        await place.call("POST", f"topics/busy/{verb}", body)
    await place.call("POST", "topics/busy/purge", {"states": ["ready", "delayed", "in_flight"]})


async def epochs(place: Place) -> None:
    """An epoch is staged and committed."""
    producer = f"producers/p/epochs/{next(_numbers)}"
    await place.call("POST", f"{producer}/stage", {"topic": "e", "records": [{"data": 1}]})
    await place.call("POST", f"{producer}/commit", {"parts": [{"chunks": 1, "rows": 1}]})


async def watches(place: Place) -> None:
    """A session is opened, read, broken off, opened again."""
    made = json.loads(await place.call("POST", "watch", {"topics": {"log": {}}, "node": "n"}))
    for _ in range(2):
        reader, writer = await place.connect()
        writer.write(request("GET", f"watch/{made['wid']}"))
        await reader.read(500)
        writer.transport.abort()


async def sockets(place: Place) -> None:
    """Subscriptions and writes, then an end in order, or none."""
    host, port = place.address
    async with connect(f"ws://{host}:{port}/v0/ws", proxy=None) as socket:
        for message in (
            {"op": "subscribe", "topic": "log", "request_id": 1},
            {"op": "publish", "topic": "e", "records": [{"data": 1}], "request_id": 2},
            {"op": "unsubscribe", "topic": "log"},
            {"op": "subscribe", "topics": {"log": {}, "e": {}}},
            {"op": "nosuch"},
        ):
            await socket.send(json.dumps(message))
        await socket.recv()
        if next(_numbers) % 2:
            socket.transport.abort()


def test_nothing_is_left_of_what_lives_longer() -> None:
    async def main() -> dict[str, tuple[int, int]]:
        async with serving() as place:
            await set_up(place)
            queue = {"type": "queue", "durability": "memory", "idempotency_window_ms": 1}
            await place.call("PUT", "topics/busy", queue)
            await place.call("PUT", "topics/archive", {"durability": "memory", "cap_records": 9})
            lives = (topics_lives, jobs_lives, epochs, watches, sockets)
            return await leaks(place, *(partial(life, place) for life in lives))

    assert asyncio.run(main()) == {}


# -- what only a full garbage collection would free, of which a server makes none ----------------


async def unfinished_message(place: Place) -> None:
    """A WebSocket, and half a message."""
    reader, writer = await place.connect()
    handshake = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write(request("GET", "ws", None, handshake + key))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x81\xfe\xff\xff" + b"\0\0\0\0" + b"x" * 999)
    await writer.drain()
    await asyncio.sleep(0)
    writer.transport.abort()


async def cycles(place: Place, *calls: Callable[[], Awaitable[object]]) -> Counter[str]:
    """What calls leave behind that reference counts do not free, by type."""
    for call in calls:
        await repeat(call, 1)
    await place.rest()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for call in calls:
            await repeat(call, CYCLE_ROUNDS)
        await place.rest()
        gc.collect()
        types = Counter(f"{type(left).__module__}.{type(left).__name__}" for left in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    ours = ("logqueue.", "websockets.protocol")
    return Counter({name: n for name, n in types.items() if name.startswith(ours)})


@pytest.mark.parametrize("ending", [answered, hung_up, broken_off, failed, went_away])
def test_no_request_is_left_to_the_garbage_collector(ending: Ending) -> None:
    async def main() -> Counter[str]:
        async with serving() as place:
            await set_up(place)
            calls = [partial(ending, place, *operation) for operation in OPERATIONS.values()]
            return await cycles(place, *calls)

    assert asyncio.run(main()) == {}


def test_what_lives_longer_is_not_left_to_the_garbage_collector() -> None:
    async def main() -> Counter[str]:
        async with serving() as place:
            await set_up(place)
            queue = {"type": "queue", "durability": "memory", "idempotency_window_ms": 1}
            await place.call("PUT", "topics/busy", queue)
            await place.call("PUT", "topics/archive", {"durability": "memory", "cap_records": 9})
            lives = (topics_lives, jobs_lives, epochs, watches, sockets, unfinished_message)
            return await cycles(place, *(partial(life, place) for life in lives))

    assert asyncio.run(main()) == {}


# -- that the test bites -------------------------------------------------------------------------


def test_the_walk_finds_what_leaks() -> None:
    """In containers of any kind and depth, in closures, callbacks and slots."""

    class Leaky:
        __slots__ = ("__hidden", "heap")

        def __init__(self) -> None:
            self.heap: list[object] = []
            self.__hidden: dict[int, object] = {}

        def leak(self, kind: int) -> Callable[[], object]:
            self.heap.append((kind, lambda: self))
            self.__hidden[len(self.heap)] = {kind}
            return self.heap.clear

    leaky = Leaky()
    before = sizes([leaky.leak(0)])
    for kind in range(50):
        leaky.leak(kind)
    found = grown(before, sizes([leaky.leak]), 40)
    assert {"Leaky.heap", "Leaky._Leaky__hidden", "function"} <= {*found} | {
        name.replace("Leaky.__hidden", "Leaky._Leaky__hidden") for name in found
    }
