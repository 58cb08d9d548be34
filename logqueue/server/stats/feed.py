"""The live feed: once a second what has changed, for all viewers.

Owns: one computation a second for all viewers, in steps of a few milliseconds, and none without
one. What is read is shown once the log has it, as by any reply. Must not know: HTTP, how frames
are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from typing import Any

import msgspec

from logqueue.api import replies
from logqueue.api.paging import names_from
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.model.clock import Clock
from logqueue.server.auth import Key
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.service import Service
from logqueue.server.stats import attention
from logqueue.server.stats.attention import AttentionItem
from logqueue.server.stats.crew import Crew
from logqueue.server.stats.entries import (
    FeedEntry,
    QueueFeedEntry,
    dead_of,
    entry_of,
    masked,
    members,
    signs_of,
)
from logqueue.server.stats.history import NO_RATES, StatsHistory, in_parts
from logqueue.server.stats.server_figures import LiveRecords, ServerFigures
from logqueue.server.stats.viewers import Frame, FrameParts, StatsViewer, ViewerGroup

TOPICS_MAX = 10_000
"""Topics that one feed shows, the first by name."""
LOOKED_AT_PER_STEP = 500
ENCODED_PER_STEP = 50
"""Topics that one step of the event loop looks at, or encodes."""
CHANGED_COST = 5
"""A topic that has changed takes as long as so many others."""
LAPSING_MS = 60_000
"""How long leases that expired are remembered for attention."""
WAITING_MS = min(attention.NO_WORKER_MS, attention.OLD_JOB_MS)


class StatsFeed:
    """The feed of one server.

    Attributes:
        frames_made: How often something was computed; for tests.
    """

    def __init__(
        self,
        service: Service,
        history: StatsHistory,
        figures: ServerFigures,
        clock: Clock,
        on_viewer: Callable[[], None],
    ) -> None:
        """Without viewers.

        Args:
            service: The server.
            history: Has rates, and what happened lately.
            figures: What is said of the server itself.
            clock: Of the server.
            on_viewer: Called for each new viewer.
        """
        self._service = service
        self._history = history
        self._figures = figures
        self._clock = clock
        self._on_viewer = on_viewer
        self._groups: dict[tuple[str, ...], ViewerGroup] = {}
        self._entries: dict[int, FeedEntry] = {}
        self._crew = Crew()
        self._since: dict[tuple[str | None, str], int | None] = {}
        self._lapsing: dict[int, int] = {}
        self._records = LiveRecords()
        self._dispatcher: Dispatcher | None = None
        self._state: State | None = None
        self._frame_id = 0
        self._computing = asyncio.Lock()
        self.frames_made = 0

    # -- viewers ---------------------------------------------------------------------------------

    @property
    def has_viewers(self) -> bool:
        """Whether there are viewers."""
        return bool(self._groups)

    @property
    def viewers(self) -> int:
        """How many there are."""
        return sum(len(group.viewers) for group in self._groups.values())

    async def watch(self, key: Key | None) -> AsyncGenerator[bytes, None]:
        """The frames for one viewer: a full one at once, then what changes, until the server or
        the key ends it.

        Raises:
            Unauthorized: The key was removed.
        """
        removed = self._service.key_removed(key)
        prefixes = tuple(sorted(key.prefixes)) if key is not None else ()
        group = self._groups.get(prefixes)
        if group is None:
            group = self._groups[prefixes] = ViewerGroup(prefixes)
        viewer = StatsViewer(group, key)
        group.viewers.add(viewer)
        self._on_viewer()
        if removed is not None:
            removed.add_done_callback(lambda done: _end_with(viewer, done))
        try:
            async with aclosing(viewer.frames(self._full_frame)) as frames:
                async for frame in frames:
                    yield frame
        finally:
            if removed is not None:
                removed.cancel()
            self._leave(viewer)

    def _leave(self, viewer: StatsViewer) -> None:
        group = viewer.group
        group.viewers.discard(viewer)
        if not group.viewers and self._groups.get(group.prefixes) is group:
            del self._groups[group.prefixes]
        if not self._groups:
            self._forget()

    def _forget(self) -> None:
        self._dispatcher = self._state = None
        self._records = LiveRecords()
        self._entries = {}
        self._since.clear()
        self._lapsing.clear()
        self._crew = Crew()

    def end(self, error: LogqueueError) -> None:
        """End all streams; the last event says why."""
        for group in self._groups.values():
            for viewer in group.viewers:
                viewer.end(error)

    # -- the computation -------------------------------------------------------------------------

    async def tick(self, active: Iterable[int]) -> None:
        """Look what has changed, and give all viewers a frame about it.

        Args:
            active: Topic instances on which something has happened since the last call.
        """
        async with self._computing:
            if not self._groups:
                return
            self.frames_made += 1
            dispatcher = self._service.lifecycle.dispatcher
            if not self._is_same(dispatcher):
                self._forget()
                for group in self._groups.values():
                    group.begin_again()
                return
            if dispatcher is None:
                return
            numbers = set(active)
            self._records.look(dispatcher.engine, numbers)
            fresh = await self._update(dispatcher, numbers)
            is_stored = await self._is_stored(dispatcher, fresh)
            self._frame_id += 1
            for group in [*self._groups.values()]:
                if group.is_whole and is_stored:
                    await self._change(group, dispatcher, sorted(fresh))
                else:
                    group.begin_again()

    def _is_same(self, dispatcher: Dispatcher | None) -> bool:
        """Whether the server still has the state that the entries are of: a standby takes over, and
        a log that failed is read back."""
        if dispatcher is None:
            return self._dispatcher is None
        return dispatcher is self._dispatcher and dispatcher.engine.state is self._state

    async def _update(self, dispatcher: Dispatcher, active: set[int]) -> set[int]:
        """Bring the entries up to date; the instances whose entries are others now, or gone."""
        await self._crew.look(dispatcher, self._clock.now_ms())
        fresh: set[int] = set()
        left, now = 0, 0
        for number in self._entries.keys() | active:
            if left <= 0:
                await asyncio.sleep(0)
                left, now = LOOKED_AT_PER_STEP, dispatcher.engine.clock.now_ms()
            if self._refresh(dispatcher, number, number in active, now):
                fresh.add(number)
                left -= CHANGED_COST
            left -= 1
        return fresh

    def _refresh(self, dispatcher: Dispatcher, number: int, is_active: bool, now: int) -> bool:
        """Bring one entry up to date; whether it changed."""
        state = dispatcher.engine.state
        topic = state.instances.get(number)
        old = self._entries.get(number)
        if topic is None:
            return self._entries.pop(number, None) is not None
        if old is None:
            if any(self._takes(group, topic) for group in self._groups.values()):
                self._entries[number] = self._entry(dispatcher, topic, now)
                return True
            return False
        if is_active or _is_due(topic, now) or self._differs(dispatcher, topic, old):
            entry = self._entry(dispatcher, topic, now, self._history.oldest.get(number))
        elif old.rates != NO_RATES:
            # Nothing but these: they are means, and change for a while longer.
            entry = old._replace(rates=self._history.rates(topic, now))
        else:
            return False
        if entry == old:
            return False
        self._entries[number] = entry
        return True

    def _differs(self, dispatcher: Dispatcher, topic: Topic, old: FeedEntry) -> bool:
        """Whether what does not depend on the topic itself has changed."""
        if not isinstance(old, QueueFeedEntry):
            return False
        is_limited = old.rate_limited
        dead = dead_of(dispatcher.engine.state, topic) if old.dead is not None else None
        return is_limited or dead != old.dead or self._crew.count(topic) != old.workers

    def _takes(self, group: ViewerGroup, topic: Topic) -> bool:
        """Whether a group shows a new topic."""
        if not group.is_whole or not group.allows(topic.name):
            return False
        if len(group.shown) >= TOPICS_MAX:
            group.is_truncated = True
            return False
        return True

    def _entry(
        self, dispatcher: Dispatcher, topic: Topic, now: int, oldest_ms: int | None = None
    ) -> FeedEntry:
        engine = dispatcher.engine
        if isinstance(topic, QueueTopic) and topic.queue.rests_to < now:
            engine.lapse(topic, now)
            oldest_ms = None
        rates = self._history.rates(topic, now)
        if rates.expired:
            self._lapsing[topic.number] = now + LAPSING_MS
        workers = self._crew.count(topic, is_fresh=True)
        return entry_of(engine.state, topic, rates, workers, now, oldest_ms)

    async def _is_stored(self, dispatcher: Dispatcher, fresh: Iterable[int]) -> bool:
        """Wait until the log has what was read; whether it will."""
        instances = dispatcher.engine.state.instances
        written, durable = 0, dispatcher.engine.control_mark
        for number in fresh:
            topic = instances.get(number)
            if topic is not None:
                written = max(written, topic.mark_written)
                durable = max(durable, topic.mark_durable)
        try:
            await dispatcher.barrier.wait(written, durable)
        except LogqueueError:
            # A log that failed: the state falls back to what the disk has, and is shown then.
            return False
        return True

    # -- frames ----------------------------------------------------------------------------------

    async def _change(
        self, group: ViewerGroup, dispatcher: Dispatcher, fresh: Sequence[int]
    ) -> None:
        """Make what has changed for a group, and publish it if there is anything."""
        parts = FrameParts(b'event: change\nid: %d\ndata: {"topics":{' % self._frame_id)
        gone: list[str] = []
        for some in in_parts(fresh, ENCODED_PER_STEP):
            topics: list[bytes] = []
            for number in some:
                self._change_of(group, dispatcher, number, topics, gone)
            parts.add(topics)
            await asyncio.sleep(0)
        items = await self._attention(group, dispatcher)
        server = self._server_of(group, items)
        changed = {name: value for name, value in server.items() if group.server.get(name) != value}
        encoded = replies.encode([item._asdict() for item in items])
        is_new = encoded != group.attention
        group.server, group.attention = server, encoded
        if not (parts.has_topics or gone or changed or is_new):
            return
        back = b'},"at":%d,"server":%b,"gone":%b%b}\n\n' % (
            self._clock.now_ms(),
            replies.encode(changed),
            replies.encode(gone),
            b',"attention":' + encoded if is_new else b"",
        )
        group.publish(parts.end(back))

    def _change_of(
        self,
        group: ViewerGroup,
        dispatcher: Dispatcher,
        number: int,
        topics: list[bytes],
        gone: list[str],
    ) -> None:
        entry = self._entries.get(number)
        before = group.shown.get(number)
        if entry is None:
            if before is not None:
                del group.shown[number]
                gone.append(group.names.pop(number))
            return
        topic = dispatcher.engine.state.instances.get(number)
        if topic is None or not group.allows(topic.name):
            return
        if before is None and len(group.shown) >= TOPICS_MAX:
            return
        if group.prefixes:
            entry = masked(entry, group.allows)
        if before is not None and type(before) is not type(entry):
            # A log became a queue: the same name, another set of members.
            gone.append(topic.name)
            before = None
        if entry != before:
            group.shown[number] = entry
            group.names[number] = topic.name
            topics.append(_named(topic.name, members(entry, before)))

    async def _full_frame(self, viewer: StatsViewer) -> Frame | None:
        """A full frame for one viewer, and the same for all of its group until the next tick."""
        async with self._computing:
            group = viewer.group
            dispatcher = self._service.lifecycle.dispatcher
            if not self._is_same(dispatcher):
                self._forget()
                for other in self._groups.values():
                    other.begin_again()
            if dispatcher is not None and not group.is_whole:
                self._dispatcher, self._state = dispatcher, dispatcher.engine.state
                if not await self._open(group, dispatcher):
                    # The next tick wakes the viewer again.
                    return None
            if group.full is None:
                group.full = await self._make_full(group, dispatcher)
            viewer.wants_full = False
            front = b'event: full\nid: %d\ndata: {"at":%d,"key":%b' % (
                self._frame_id,
                self._clock.now_ms(),
                viewer.key_members,
            )
            return (front, *group.full)

    async def _open(self, group: ViewerGroup, dispatcher: Dispatcher) -> bool:
        """Look at all that a group shows; whether the log has it."""
        engine = dispatcher.engine
        if not self._entries:
            await self._crew.look(dispatcher, self._clock.now_ms())
            await self._records.begin(engine)
        key = group if group.prefixes else None
        names = [name async for name in _names(dispatcher, key)]
        group.is_truncated = len(names) > TOPICS_MAX
        shown: dict[int, FeedEntry] = {}
        for some in in_parts(names[:TOPICS_MAX], ENCODED_PER_STEP):
            now = engine.clock.now_ms()
            for name in some:
                topic: Topic | None = engine.state.topics.get(name)
                if topic is None:
                    continue
                entry = self._entries.get(topic.number)
                if entry is None:
                    entry = self._entries[topic.number] = self._entry(dispatcher, topic, now)
                shown[topic.number] = masked(entry, group.allows)
                group.names[topic.number] = name
            await asyncio.sleep(0)
        if not await self._is_stored(dispatcher, shown):
            return False
        group.shown = shown
        items = await self._attention(group, dispatcher)
        group.server = self._server_of(group, items)
        group.attention = replies.encode([item._asdict() for item in items])
        group.is_whole = True
        return True

    async def _make_full(self, group: ViewerGroup, dispatcher: Dispatcher | None) -> Frame:
        if not group.server:
            group.server = self._server_of(group, [])
        parts = FrameParts(b',"server":%b,"topics":{' % replies.encode(group.server))
        for some in in_parts([*group.shown.items()], ENCODED_PER_STEP):
            now = self._clock.now_ms()
            topics: list[bytes] = []
            for number, entry in some:
                found = members(entry)
                topic = dispatcher.engine.state.instances.get(number) if dispatcher else None
                into, out = self._history.recent(topic, now) if topic is not None else ([], [])
                found["recent"] = {"in": into, "out": out}
                topics.append(_named(group.names[number], found))
            parts.add(topics)
            await asyncio.sleep(0)
        back = b'},"truncated":%b,"attention":%b}\n\n' % (
            b"true" if group.is_truncated else b"false",
            group.attention,
        )
        return parts.end(back)

    def _server_of(self, group: ViewerGroup, items: list[AttentionItem]) -> dict[str, Any]:
        health, text = attention.health_of(items)
        figures = self._figures.now(self._history, self._records.total)
        return {**figures, "health": health, "health_text": text}

    # -- attention -------------------------------------------------------------------------------

    async def _attention(
        self, group: ViewerGroup, dispatcher: Dispatcher | None
    ) -> list[AttentionItem]:
        """What needs attention of what a group may see."""
        started_at = self._figures.started_at
        findings = self._figures.findings()
        found = [*attention.of_server(findings, shows_all=not group.prefixes)]
        letters: dict[str, tuple[int, list[str]]] = {}
        for some in in_parts([*group.shown.items()], LOOKED_AT_PER_STEP):
            now = self._clock.now_ms()
            for number, entry in some:
                topic = dispatcher.engine.state.instances.get(number) if dispatcher else None
                if topic is None:
                    continue
                if isinstance(entry, QueueFeedEntry) and entry.dead and entry.dead_letter:
                    letters.setdefault(entry.dead_letter, (entry.dead, []))[1].append(topic.name)
                if self._may_need_attention(number, entry, topic, now):
                    expired = 0
                    if number in self._lapsing:
                        expired = self._history.count(topic, "expired", now, 60)
                    seen_at = self._crew.last_seen_at(topic)
                    signs = signs_of(topic.name, entry, topic, expired, seen_at)
                    found += attention.of_topic(signs, started_at, now)
            await asyncio.sleep(0)
        found += [attention.of_dead_letters(name, *letters[name]) for name in letters]
        return attention.in_order(self._with_since(found, is_first=not group.is_whole))

    def _may_need_attention(self, number: int, entry: FeedEntry, topic: Topic, now: int) -> bool:
        """Whether a closer look can find anything: nearly all topics are passed over here."""
        if isinstance(entry, QueueFeedEntry):
            oldest = entry.oldest_ready_at
            if entry.held or (oldest is not None and (entry.paused or now - oldest >= WAITING_MS)):
                return True
            until = self._lapsing.get(number)
            if until is not None:
                if now <= until:
                    return True
                del self._lapsing[number]
        return topic.config.discard == "reject"

    def _with_since(self, items: list[AttentionItem], *, is_first: bool) -> list[AttentionItem]:
        """What is seen to begin, began then; when it was there at the first look, is unknown."""
        now = None if is_first else self._clock.now_ms()
        since = self._since
        if len(since) > 2 * TOPICS_MAX:
            since.clear()
        return [
            item
            if item.since
            else item._replace(since=since.setdefault((item.topic, item.code), now))
            for item in items
        ]


async def _names(dispatcher: Dispatcher, key: ViewerGroup | None) -> AsyncGenerator[str, None]:
    """The names that a group may see, one more than a feed shows at most."""
    left, last = TOPICS_MAX + 1, ""
    while left > 0:
        known = dispatcher.engine.state.topics
        some = [*islice(names_from(known, "", last, key), min(left, LOOKED_AT_PER_STEP))]
        for name in some:
            yield name
        if not some:
            return
        left -= len(some)
        last = some[-1]
        await asyncio.sleep(0)


def _named(name: str, found: dict[str, Any]) -> bytes:
    return b"%b:%b" % (msgspec.json.encode(name), replies.encode(found))


def _is_due(topic: Topic, now: int) -> bool:
    """Whether time has changed a queue."""
    return isinstance(topic, QueueTopic) and topic.queue.rests_to < now


def _end_with(viewer: StatsViewer, removed: asyncio.Future[Any]) -> None:
    with suppress(asyncio.CancelledError):
        error = removed.exception()
        if isinstance(error, LogqueueError):
            viewer.end(error)
