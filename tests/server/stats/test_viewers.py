"""Who sees what of the live feed, and what viewers cost: keys, slow clients, steps, a standby."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from logqueue.server.auth import parse_keys
from logqueue.server.stats import feed as feeds
from logqueue.server.stats import history as histories
from logqueue.server.stats.feed import StatsFeed
from tests.server import lines
from tests.server.lines import Line, turns
from tests.server.stepped import Stepped, request

KEYS = "all,mine:read+write+admin:a.|b.,blind:write"


class Place(Stepped):
    """A server whose seconds are made by the test."""

    def __init__(self, keys: str = KEYS) -> None:
        super().__init__(keys)
        self.runtime.stats._is_running = True
        self._calls = self.connect()

    async def call(self, method: str, path: str, body: object = None, key: str = "all") -> bytes:
        """A request, and the body of its reply."""
        content = b"" if body is None else msgspec.json.encode(body)
        fields = (b"content-type: application/json",) if content else ()
        key = key if self.runtime.service.keys else ""
        reply = await self.talk(
            self._calls, request(method, f"/v0/{path}", content, *fields, key=key)
        )
        return reply.partition(b"\r\n\r\n")[2]

    async def view(self, key: str = "all") -> Line:
        """A viewer."""
        line = self.connect()
        line.send(request("GET", "/v0/stats/stream", key=key if self.runtime.service.keys else ""))
        await self.rest()
        await turns(200)
        return line

    async def second(self) -> None:
        """A second passes."""
        self.clock.advance(1000)
        task = asyncio.ensure_future(self.runtime.stats.second())
        while not task.done():
            await self.rest()
        task.result()
        await turns(50)


def events(wire: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The events in what a stream brought."""
    wire = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", wire)  # between the chunks of HTTP
    found = re.findall(rb"event: (\w+)\n(?:id: \d+\n)?data: (.*)\n\n", wire)
    return [(name.decode(), msgspec.json.decode(data)) for name, data in found]


def in_loop(scene: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in an event loop of its own."""

    def run() -> None:
        asyncio.run(scene())

    run.__name__ = scene.__name__
    return run


@in_loop
async def test_a_key_sees_its_own_names_only() -> None:
    place = Place()
    secret = {"type": "queue", "dead_letter": "secret.dead", "archive": "secret.done"}
    for name in ("a.jobs", "b.jobs", "secret.jobs"):
        await place.call("PUT", f"topics/{name}", secret)
        await place.call("POST", f"topics/{name}", {"records": [{"data": 1}]})
    await place.call("POST", "topics/secret.dead", {"records": [{"data": 1}]})
    mine, whole = await place.view("mine"), await place.view()
    both = [mine.read(), whole.read()]
    place.clock.advance(600_000)
    await place.call("POST", "topics/a.jobs", {"records": [{"data": 2}]})
    await place.call("POST", "topics/secret.jobs", {"records": [{"data": 2}]})
    await place.call("PUT", "topics/b.new", secret)
    await place.call("PUT", "topics/secret.new", secret)
    await place.call("DELETE", "topics/secret.jobs")
    await place.second()
    both = [both[0] + mine.read(), both[1] + whole.read()]
    assert b"secret" not in both[0]
    (_, full), (_, change) = events(both[0])
    assert full["key"] == {"scopes": ["read", "write", "admin"], "prefixes": ["a.", "b."]}
    assert sorted(full["topics"]) == ["a.jobs", "b.jobs"]
    assert full["topics"]["a.jobs"]["dead"] is None
    # Both have another rate by now.
    assert sorted(change["topics"]) == ["a.jobs", "b.jobs", "b.new"]
    assert change["gone"] == []
    assert {item["topic"] for item in change["attention"]} == {"a.jobs", "b.jobs"}
    (_, full), (_, change) = events(both[1])
    assert len(full["topics"]) == 4
    assert full["topics"]["a.jobs"]["dead"] == 1
    assert change["gone"] == ["secret.jobs"]
    assert "secret.new" in change["topics"]
    assert place.runtime.stats.feed.frames_made == 1
    await place.stop()


@in_loop
async def test_who_may_not_look() -> None:
    place = Place()
    for key, status in (("", b"401"), ("other", b"401"), ("blind", b"403")):
        line = place.connect()
        line.send(request("GET", "/v0/stats/stream", key=key))
        await place.rest()
        assert line.read().split()[1] == status
    line = place.connect()
    line.send(request("GET", "/v0/stats/stream", b"", b"accept: application/json", key="all"))
    await place.rest()
    assert line.read().split()[1] == b"406"
    assert not place.runtime.stats.feed.has_viewers
    await place.stop()


@in_loop
async def test_a_removed_key_ends_its_streams() -> None:
    place = Place()
    removed, kept = await place.view("mine"), await place.view()
    removed.read()
    kept.read()
    place.runtime.service.change_keys(parse_keys("all"))
    await turns(100)
    ((name, last),) = events(removed.read())
    assert (name, last["code"]) == ("error", "unauthorized")
    assert place.runtime.stats.feed.viewers == 1
    assert place.runtime.service.streams == 1
    await place.stop()
    ((name, last),) = events(kept.read())
    assert (name, last["code"]) == ("error", "server_shutting_down")


def test_a_client_that_does_not_read_costs_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it sleeps; then it gets all there is in one frame."""
    monkeypatch.setattr(lines, "HIGH_WATER", 1000)

    async def scene() -> None:
        place = Place("")
        for n in range(20):
            await place.call("PUT", f"topics/q{n}", {"type": "queue"})
        slow, quick = await place.view(), await place.view()
        assert [name for name, _ in events(quick.read())] == ["full"]
        slow.read()
        slow.is_read = False
        sizes = []
        for second in range(8):
            for n in range(20):
                await place.call("POST", f"topics/q{n}", {"records": [{"data": second}]})
            await place.second()
            sizes.append(len(slow.written))
            assert [name for name, _ in events(quick.read())] == ["change"]
        assert 0 < sizes[0] <= sizes[2] == sizes[-1]
        (group,) = place.runtime.stats.feed._groups.values()
        (viewer,) = [viewer for viewer in group.viewers if viewer.wants_full]
        assert viewer._pending is None
        slow.read()
        await turns(100)
        (name, last) = events(slow.read())[-1]
        assert name == "full"
        assert {topic["ready"] for topic in last["topics"].values()} == {8}
        await place.stop()

    asyncio.run(scene())


@in_loop
async def test_nothing_is_left_of_viewers_that_went() -> None:
    place = Place("")
    lines = [await place.view() for _ in range(5)]
    assert place.runtime.stats.feed.viewers == place.runtime.service.streams == 5
    for line in lines:
        line.hang_up()
    await turns(100)
    feed = place.runtime.stats.feed
    assert (feed.viewers, feed.has_viewers, place.runtime.service.streams) == (0, False, 0)
    assert not feed._entries and not feed._groups
    await place.stop()


def test_no_step_looks_at_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever there is, the loop takes others' turns in between."""
    for module, name in (
        (feeds, "LOOKED_AT_PER_STEP"), (feeds, "ENCODED_PER_STEP"), (histories, "FOLDED_PER_STEP"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 5)
    per_turn: list[int] = [0]
    for owner, name in ((StatsFeed, "_refresh"), (StatsFeed, "_change_of"), (StatsFeed, "_entry"),
                        (histories.StatsHistory, "_fold")):  # fmt: skip
        original = getattr(owner, name)

        def counted(*given: Any, original: Any = original, **named: Any) -> Any:
            per_turn[-1] += 1
            return original(*given, **named)

        monkeypatch.setattr(owner, name, counted)

    async def scene() -> None:
        place = Place("")
        for n in range(60):
            await place.call("PUT", f"topics/q{n}", {"type": "queue"})

        async def count() -> None:
            while True:
                await asyncio.sleep(0)
                per_turn.append(0)

        counting = asyncio.ensure_future(count())
        line = await place.view()
        for n in range(60):
            await place.call("POST", f"topics/q{n}", {"records": [{"data": 1}]})
        await place.second()
        counting.cancel()
        assert [name for name, _ in events(line.read())] == ["full", "change"]
        await place.stop()

    asyncio.run(scene())
    assert sum(per_turn) >= 240
    assert max(per_turn) <= 10
