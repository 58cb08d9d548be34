"""Handlers of the topic routes: configure, look, list, delete, write, read, delete records."""

from __future__ import annotations

import base64
import binascii
import time
from itertools import islice
from typing import Any

import msgspec

from logqueue import wire
from logqueue.core import commands as cmd
from logqueue.errors import Forbidden, InvalidRequest
from logqueue.server.auth import Scope
from logqueue.server.requests import Reply, Request
from logqueue.server.service import Service

PAGE_DEFAULT = 100
PAGE_MAX = 1000


class TopicRoutes:
    """The topic half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def put(self, request: Request) -> Reply:
        """`PUT /v0/topics/:topic`: create, or replace the whole config."""
        coordinator = self._service.require_serving()
        config = wire.read_config_body(request.body or b"{}").resolved()
        key = request.key
        target = config.dead_letter
        if key is not None and target is not None and not key.allows(target):
            raise Forbidden(
                "this key may not name a dead-letter topic outside its prefixes", {"topic": target}
            )
        answered = await coordinator.execute(cmd.PutTopic(request.name, config))
        reply = answered.reply
        assert isinstance(reply, cmd.Put)
        body = {
            "topic": request.name,
            "created": reply.created,
            "config": wire.config_members(reply.config),
            "performance": request.timings(),
        }
        return Reply(wire.encode(body), 201 if reply.created else 200)

    async def get(self, request: Request) -> Reply:
        """`GET /v0/topics/:topic`: state and counters as of now."""
        coordinator = self._service.require_serving()
        engine = coordinator.engine
        touch = request.flag("touch", True)
        topic = engine.look(request.name)
        now = engine.clock.now_ms()
        if touch:
            topic.last_read_at = now
        state = wire.topic_state(topic, now)
        await coordinator.settled(topic)
        return Reply(wire.encode({**state, "performance": request.timings()}))

    async def list(self, request: Request) -> Reply:
        """`GET /v0/topics`: a page of topics in name order."""
        coordinator = self._service.require_serving()
        engine = coordinator.engine
        query = request.query
        prefix = query.get("prefix", "")
        size = page_size(query.get("page_size"))
        after = read_cursor(query.get("cursor"))
        names = engine.state.topics.irange(max(after, prefix), inclusive=(after < prefix, True))
        key = request.key
        found: list[str] = []
        for name in names:
            if not name.startswith(prefix):
                break
            if key is None or key.allows(name):
                found.append(name)
                if len(found) > size:
                    break
        entries = []
        for name in islice(found, size):
            topic = engine.look(name)
            entries.append(wire.topic_entry(topic, engine.clock.now_ms()))
            await coordinator.settled(topic)
        page: dict[str, Any] = {"topics": entries}
        if len(found) > size:
            page["next_cursor"] = write_cursor(found[size - 1])
        return Reply(wire.encode({**page, "performance": request.timings()}))

    async def drop(self, request: Request) -> Reply:
        """`DELETE /v0/topics/:topic`: delete the topic and all it holds."""
        coordinator = self._service.require_serving()
        command = cmd.DropTopic(request.name, request.flag("if_empty", False))
        answered = await coordinator.execute(command)
        assert isinstance(answered.reply, cmd.Dropped)
        body = {
            "topic": request.name,
            "deleted": answered.reply.deleted,
            "routers_removed": [],
            "performance": request.timings(),
        }
        return Reply(wire.encode(body))

    async def append(self, request: Request) -> Reply:
        """`POST /v0/topics/:topic`: write a batch."""
        coordinator = self._service.require_serving()
        decoded = wire.read_append_body(request.body)
        key = request.key
        restricted = key is not None and not key.has(Scope.ADMIN)
        exists = request.name in coordinator.engine.state.topics
        if decoded.config is not None and restricted and not exists:
            raise Forbidden("creating a topic with a config needs a key with the admin scope")
        header = None
        if decoded.idempotency_key is None:
            sent = request.header(b"idempotency-key")
            header = sent.decode("utf-8", "replace") if sent is not None else None
        command = wire.append_command(request.name, decoded, header)
        began = time.perf_counter()
        answered = await coordinator.execute(command)
        reply = answered.reply
        assert isinstance(reply, cmd.Appended)
        timings = request.timings()
        if not reply.deduped:
            took_ms = (time.perf_counter() - began) * 1000
            topic = coordinator.engine.state.topics.get(request.name)
            synced = topic is not None and topic.config.durability == "fsync"
            timings["wal_append_ms"] = took_ms - answered.waited_ms
            timings["fsync_ms"] = answered.waited_ms if synced else 0.0
        return Reply(
            wire.encode_appended(request.name, reply, request.flag("return_seqs", True), timings),
            201 if reply.created else 200,
        )

    async def diff(self, request: Request) -> Reply:
        """`POST /v0/topics/:topic/diff`: read records behind a cursor."""
        coordinator = self._service.require_serving()
        body = wire.read_diff_body(request.body or b"{}")
        engine = coordinator.engine
        topic = engine.look(request.name)
        now = engine.clock.now_ms()
        topic.last_read_at = now
        page = wire.read_page(topic, body, now)
        await coordinator.settled(topic)
        return Reply(wire.encode_page(request.name, page, body, request.timings()))

    async def delete(self, request: Request) -> Reply:
        """`POST /v0/topics/:topic/delete`: delete records by seq and/or tag."""
        coordinator = self._service.require_serving()
        command = wire.delete_command(request.name, request.body)
        answered = await coordinator.execute(command)
        assert isinstance(answered.reply, cmd.Removed)
        topic = coordinator.engine.state.topic(request.name)
        body = {
            "topic": request.name,
            "deleted": answered.reply.deleted,
            "earliest_seq": topic.earliest_seq,
            "head_seq": topic.head,
            "count": topic.live,
            "bytes": topic.live_bytes,
            "performance": request.timings(),
        }
        return Reply(wire.encode(body))


def page_size(given: str | None) -> int:
    """The `page_size` parameter: 100 unless a non-negative integer; 1 to 1000."""
    if given is None or not (given.isascii() and given.isdigit()):
        return PAGE_DEFAULT
    return min(max(int(given[:20]), 1), PAGE_MAX)


def write_cursor(name: str) -> str:
    """A position in a list: URL-safe, without padding, opaque to clients."""
    return base64.urlsafe_b64encode(wire.encode({"after": name})).rstrip(b"=").decode()


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
