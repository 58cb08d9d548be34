"""Handlers of the topic routes: configure, look, list, delete, write, read, delete records."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from logqueue import replies, wire
from logqueue.core import commands as cmd
from logqueue.core.config import TopicConfig
from logqueue.core.limits import DIFF_WAIT_MS_MAX
from logqueue.core.reading import Page
from logqueue.core.topic import Topic
from logqueue.errors import Forbidden, InvalidRequest
from logqueue.server.auth import Scope
from logqueue.server.engine import Engine
from logqueue.server.requests import Answer, Held, Reply, Request
from logqueue.server.service import Service

PAGE_DEFAULT = 100
PAGE_MAX = 1000


class TopicRoutes:
    """The topic half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def put(self, request: Request) -> Held:
        """`PUT /v0/topics/:topic`: create, or replace the whole config."""
        coordinator = self._service.require_serving()
        config = wire.read_config_body(request.body or b"{}").resolved()
        _require_target_allowed(request, config)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Put)
            body = {
                "topic": request.name,
                "created": reply.created,
                "config": replies.config_members(reply.config),
                "performance": request.timings(),
            }
            return Reply(replies.encode(body), 201 if reply.created else 200)

        return coordinator.submit(cmd.PutTopic(request.name, config), finish)

    def get(self, request: Request) -> Held:
        """`GET /v0/topics/:topic`: state and counters as of now."""
        engine = self._service.require_serving().engine
        touch = request.flag("touch", True)
        topic = engine.look(request.name)
        now = engine.clock.now_ms()
        if touch:
            topic.last_read_at = topic.touched_at = now
        state = replies.topic_state(topic, now)

        def finish(waited_ms: float) -> Reply:
            return Reply(replies.encode({**state, "performance": request.timings()}))

        return Held(topic.mark_written, topic.mark_durable, finish)

    def list(self, request: Request) -> Held:
        """`GET /v0/topics`: a page of topics in name order."""
        engine = self._service.require_serving().engine
        query = request.query
        size = page_size(query.get("page_size"))
        names = self._names(request, query.get("prefix", ""), read_cursor(query.get("cursor")))
        found = [*islice(names, size + 1)]
        topics = [engine.look(name) for name in found[:size]]
        now = engine.clock.now_ms()
        if request.flag("touch", False):
            for topic in topics:
                topic.touched_at = now
        page: dict[str, Any] = {"topics": [replies.topic_entry(topic, now) for topic in topics]}
        if len(found) > size:
            page["next_cursor"] = write_cursor(found[size - 1])

        def finish(waited_ms: float) -> Reply:
            return Reply(replies.encode({**page, "performance": request.timings()}))

        return Held(
            max((topic.mark_written for topic in topics), default=0),
            max((topic.mark_durable for topic in topics), default=0),
            finish,
        )

    def _names(self, request: Request, prefix: str, after: str) -> Iterator[str]:
        """Names with a prefix, behind a position, that the key may see."""
        topics = self._service.require_serving().engine.state.topics
        key = request.key
        for name in topics.irange(max(after, prefix), inclusive=(after < prefix, True)):
            if not name.startswith(prefix):
                return
            if key is None or key.allows(name):
                yield name

    def drop(self, request: Request) -> Held:
        """`DELETE /v0/topics/:topic`: delete the topic and all it holds."""
        coordinator = self._service.require_serving()

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Dropped)
            body = {
                "topic": request.name,
                "deleted": reply.deleted,
                "routers_removed": [],
                "performance": request.timings(),
            }
            return Reply(replies.encode(body))

        command = cmd.DropTopic(request.name, request.flag("if_empty", False))
        return coordinator.submit(command, finish)

    def append(self, request: Request) -> Held:
        """`POST /v0/topics/:topic`: write a batch."""
        coordinator = self._service.require_serving()
        topics = coordinator.engine.state.topics
        decoded = wire.read_append_body(request.body)
        key = request.key
        if decoded.config is not None and request.name not in topics:
            if key is not None and not key.has(Scope.ADMIN):
                raise Forbidden("creating a topic with a config needs a key with the admin scope")
            _require_target_allowed(request, decoded.config)
        header_key = None
        if decoded.idempotency_key is None:
            sent = request.header(b"idempotency-key")
            header_key = sent.decode("utf-8", "replace") if sent is not None else None
        command = wire.append_command(request.name, decoded, header_key)
        return_seqs = request.flag("return_seqs", True)
        began = time.perf_counter()

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Appended)
            timings = request.timings()
            if not reply.deduped:
                topic = topics.get(request.name)
                synced = topic is not None and topic.config.durable
                timings["wal_append_ms"] = appended_ms
                timings["fsync_ms"] = waited_ms if synced else 0.0
            body = replies.encode_appended(request.name, reply, return_seqs, timings)
            return Reply(body, 201 if reply.created else 200)

        held = coordinator.submit(command, finish)
        appended_ms = (time.perf_counter() - began) * 1000
        return held

    def diff(self, request: Request) -> Answer:
        """`POST /v0/topics/:topic/diff`: read records behind a cursor, or wait for some."""
        coordinator = self._service.require_serving()
        body = wire.read_diff_body(request.body or b"{}")
        topic, page = _read(coordinator.engine, request, body)
        if body.wait_ms and page.says_nothing:
            return request.unless_gone(self._diff_when_there_is(request, body))
        return Held(
            topic.mark_written, topic.mark_durable, lambda waited_ms: _paged(request, body, page)
        )

    async def _diff_when_there_is(self, request: Request, body: wire.DiffBody) -> Reply:
        """The long poll: read again whenever the topic changes, until there is something."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(body.wait_ms, DIFF_WAIT_MS_MAX) / 1000
        while True:
            coordinator = self._service.require_serving()
            # Registered before the read, so that no change falls between the two.
            changed = coordinator.next_change(request.name)
            topic, page = _read(coordinator.engine, request, body)
            left_s = deadline - loop.time()
            if not page.says_nothing or left_s <= 0:
                changed.cancel()
                await coordinator.gate.wait(topic.mark_written, topic.mark_durable)
                return _paged(request, body, page)
            await asyncio.wait((changed,), timeout=left_s)

    def delete(self, request: Request) -> Held:
        """`POST /v0/topics/:topic/delete`: delete records by seq and/or tag."""
        coordinator = self._service.require_serving()
        command = wire.delete_command(request.name, request.body)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Removed)
            body = {
                "topic": request.name,
                "deleted": reply.deleted,
                "earliest_seq": reply.earliest_seq,
                "head_seq": reply.head_seq,
                "count": reply.live,
                "bytes": reply.live_bytes,
                "performance": request.timings(),
            }
            return Reply(replies.encode(body))

        return coordinator.submit(command, finish)


def _read(engine: Engine, request: Request, body: wire.DiffBody) -> tuple[Topic, Page]:
    topic = engine.look(request.name)
    now = engine.clock.now_ms()
    topic.last_read_at = topic.touched_at = now
    return topic, wire.read_page(topic, body, now)


def _paged(request: Request, body: wire.DiffBody, page: Page) -> Reply:
    timings = request.timings()
    return Reply(
        replies.encode_page(request.name, page, body.include_tags, body.include_meta, timings)
    )


def _require_target_allowed(request: Request, config: TopicConfig) -> None:
    """A key must not reach a topic outside its prefixes by way of dead letters."""
    target = config.dead_letter
    if request.key is not None and target is not None and not request.key.allows(target):
        raise Forbidden(
            "this key may not name a dead-letter topic outside its prefixes", {"topic": target}
        )


def page_size(given: str | None) -> int:
    """The `page_size` parameter: 100 unless a non-negative integer; 1 to 1000."""
    if given is None or not (given.isascii() and given.isdigit()):
        return PAGE_DEFAULT
    return min(max(int(given[:20]), 1), PAGE_MAX)


def write_cursor(name: str) -> str:
    """A position in a list: URL-safe, without padding, opaque to clients."""
    return base64.urlsafe_b64encode(replies.encode({"after": name})).rstrip(b"=").decode()


def read_cursor(given: str | None) -> str:
    """The name a cursor points behind; "" for the first page.

    Raises:
        InvalidRequest: It is no cursor of ours.
    """
    if not given:
        return ""
    # A blank is what form decoding makes of a "+" of standard base64.
    text = given.replace(" ", "+").replace("+", "-").replace("/", "_").rstrip("=")
    try:
        padded = (text + "=" * (-len(text) % 4)).encode("ascii")
        decoded = msgspec.json.decode(
            base64.b64decode(padded, altchars=b"-_", validate=True), type=dict[str, Any]
        )
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        raise InvalidRequest("`cursor` is not one that this server gave out") from None
    after = decoded.get("after", "")
    return after if isinstance(after, str) else ""
