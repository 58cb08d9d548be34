"""Handlers of the batch routes: open, look or wait, list, close, delete."""

from __future__ import annotations

import asyncio
import secrets
from itertools import islice
from typing import Any

import msgspec

from logqueue.api.bodies.job_batches import open_command
from logqueue.api.bodies.jobs import read_number
from logqueue.api.paging import names_from, page_size, read_cursor, write_cursor
from logqueue.core import commands as cmd
from logqueue.core.job_batches import JobBatch
from logqueue.errors import Forbidden
from logqueue.model import limits
from logqueue.model.job_batch import BatchCallback
from logqueue.server.engine.dispatcher import BATCH_READ, Dispatcher
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.appends import require_follow_allowed
from logqueue.server.handlers.members import reply_with, show_members
from logqueue.server.http.api import long_poll
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service


class JobBatchRoutes:
    """The batches of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("open_batch")
    def open(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/batches`: open a batch."""
        dispatcher = self._service.require_serving()
        prefixes = request.key.prefixes if request.key is not None else ()
        # A batch that is not named must be within reach of the key all the same.
        made = f"{prefixes[0] if prefixes else ''}batch-{secrets.token_hex(8)}"
        command = open_command(request.body, request.ignore, made)
        if not request.allows(command.name):
            raise Forbidden(
                "this key may not access names outside its prefixes", {"batch": command.name}
            )
        for callback in (command.on_done, command.on_problem):
            if callback is not None:
                _require_callback_allowed(request, callback)
        return dispatcher.submit(command, _opened, (request, dispatcher))

    @serves("get_batch")
    def get(self, request: HttpRequest) -> Answer:
        """`GET /v0/batches/:batch`: the counts, now or at the end."""
        dispatcher = self._service.require_serving()
        dispatcher.turn.run()
        batch = dispatcher.engine.state.batches.named(request.name)
        given = request.query.get("wait_ms")
        wait_ms = 0 if given is None else read_number(given, "`wait_ms`", limits.U32_MAX)
        if wait_ms and not batch.ended_at:
            wait_ms = min(wait_ms, limits.CLAIM_WAIT_MS_MAX)
            return long_poll(self._service, request, self._at_its_end(request, wait_ms))
        return _show(dispatcher, request, batch)

    async def _at_its_end(self, request: HttpRequest, wait_ms: int) -> Reply:
        """The long poll: look again whenever a batch of the name has ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            dispatcher = self._service.require_serving()
            # Registered before the look, so that the end does not fall between the two.
            ended = dispatcher.waiting_reads.next_change(BATCH_READ + request.name)
            try:
                batch = dispatcher.engine.state.batches.named(request.name)
                left_s = deadline - loop.time()
                if not batch.ended_at and left_s > 0:
                    await asyncio.wait((ended,), timeout=left_s)
                    continue
            finally:
                ended.cancel()
            members = _members(dispatcher, request, batch)
            await dispatcher.barrier.wait(*_marks(dispatcher, [batch]))
            return reply_with(request, members)

    @serves("list_batches")
    def list(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/batches`: a page of batches in name order."""
        dispatcher = self._service.require_serving()
        dispatcher.turn.run()
        query, batches = request.query, dispatcher.engine.state.batches
        size = page_size(query.get("page_size"))
        after = read_cursor(query.get("cursor"))
        names = names_from(batches.by_name, query.get("prefix", ""), after, request.key)
        found = [batches.named(name) for name in islice(names, size + 1)]
        entries = [_entry(dispatcher, request, batch) for batch in found[:size]]
        page: dict[str, Any] = {"batches": entries}
        if len(found) > size:
            page["next_cursor"] = write_cursor(found[size - 1].name)
        written, durable = _marks(dispatcher, found)
        return dispatcher.hold(page, written, durable, show_members, request)

    @serves("close_batch")
    def close(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/batches/:batch/close`: let it end with its last job."""
        dispatcher = self._service.require_serving()
        return dispatcher.submit(cmd.CloseBatch(request.name), _closed, (request, dispatcher))

    @serves("delete_batch")
    def drop(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/batches/:batch`: forget a batch without jobs."""
        dispatcher = self._service.require_serving()
        pending = dispatcher.submit(cmd.DropBatch(request.name), _dropped, request)
        dispatcher.waiting_reads.wake(BATCH_READ + request.name)
        return pending


def _require_callback_allowed(request: HttpRequest, callback: BatchCallback) -> None:
    if not request.allows(callback.topic):
        raise Forbidden(
            "this key may not access topics outside its prefixes", {"topic": callback.topic}
        )
    require_follow_allowed(request.key, callback.block)


def _marks(dispatcher: Dispatcher, batches: list[JobBatch]) -> tuple[int, int]:
    """What the log must have reached before these may be shown."""
    engine = dispatcher.engine
    written, durable = 0, engine.control_mark
    for batch in batches:
        for number in engine.state.batches.places.get(batch.name, ()):
            topic = engine.state.instances.get(number)
            if topic is not None:
                written = max(written, topic.mark_written)
                durable = max(durable, topic.mark_durable)
    return written, durable


def _show(dispatcher: Dispatcher, request: HttpRequest, batch: JobBatch) -> PendingReply:
    written, durable = _marks(dispatcher, [batch])
    members = _members(dispatcher, request, batch)
    return dispatcher.hold(members, written, durable, show_members, request)


def _entry(dispatcher: Dispatcher, request: HttpRequest, batch: JobBatch) -> dict[str, Any]:
    """A batch as the list shows it."""
    batches = dispatcher.engine.state.batches
    error = None if batch.error is None else batch.error.hiding(request.allows)
    state = "ended" if batch.ended_at else "closed" if batch.closed_at else "open"
    return {
        "batch": batch.name,
        "state": state,
        "joined": batch.joined,
        "done": batch.done,
        "failed": batches.failed(batch),
        "left": batches.left.get(batch.name, 0),
        "created_at": batch.created_at,
        "closed_at": batch.closed_at or None,
        "ended_at": batch.ended_at or None,
        "last_error": None if error is None else {"code": error.code, "message": error.message},
    }


def _members(dispatcher: Dispatcher, request: HttpRequest, batch: JobBatch) -> dict[str, Any]:
    """A batch as its own replies show it; callbacks to topics that the key may not access are
    left out."""
    callbacks = (("on_done", batch.on_done), ("on_problem", batch.on_problem))
    return {
        **_entry(dispatcher, request, batch),
        **{
            name: None
            if callback is None or not request.allows(callback.topic)
            else {"topic": callback.topic, "record": msgspec.Raw(callback.record)}
            for name, callback in callbacks
        },
    }


def _opened(
    context: tuple[HttpRequest, Dispatcher], result: cmd.BatchResult, spent: Spent
) -> Reply:
    request, dispatcher = context
    members = {**_members(dispatcher, request, result.batch), "created": result.created}
    return reply_with(request, members, 201 if result.created else 200)


def _closed(
    context: tuple[HttpRequest, Dispatcher], result: cmd.BatchResult, spent: Spent
) -> Reply:
    request, dispatcher = context
    return reply_with(request, _members(dispatcher, request, result.batch))


def _dropped(request: HttpRequest, result: cmd.BatchDropResult, spent: Spent) -> Reply:
    return reply_with(request, {"batch": request.name, "deleted": result.deleted})
