"""Applying the events of routers, and of the records they copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import replacing
from logqueue.core.apply.records import take_in
from logqueue.core.batch import Batch
from logqueue.core.routers import RouterState, copies, origin
from logqueue.core.state import State
from logqueue.events.split_block import Block


def _router_created(state: State, event: ev.RouterCreated, segment: int) -> None:
    state.next_topic = max(state.next_topic, event.router + 1)
    if event.topic in state.instances and event.dest in state.instances:
        router = RouterState(event.router, event.name, event.topic, event.dest, event.options)
        router.cursor = event.cursor
        state.add_router(router)


def _router_configured(state: State, event: ev.RouterConfigured, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        router.options = event.options


def _router_removed(state: State, event: ev.RouterRemoved, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        state.remove_router(router)


def _records_forwarded(state: State, event: ev.RecordsForwarded, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    topic = state.instances.get(event.topic)
    if router is None or topic is None:
        return
    _advance(router, event.cursor, event.count)
    if event.first_seq <= topic.head:
        return
    # Checkpoints of earlier versions may have left out a source that was dropped soon after.
    source = state.instances.get(router.source)
    if source is not None:
        replacing.finish(state, source)
    seqs = event.source_seqs
    made, router.made = router.made, None
    if made is not None and [*made[0]] == [*seqs]:
        block: Block | None = made[1]
    else:
        block = copies(router, source, seqs) if source is not None else None
    batch = None
    if block is not None and source is not None:
        hops, oldest = origin(source, seqs)
        # The payload is where the originals are; without a frame of its own the copy has none.
        place = oldest if segment else 0
        batch = Batch(block, event.first_seq, event.count, event.at, place, hops + 1)
    take_in(state, topic, event, batch, segment)


def _router_advanced(state: State, event: ev.RouterAdvanced, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        _advance(router, event.cursor, event.forwarded)


def _advance(router: RouterState, cursor: int, forwarded: int) -> None:
    if cursor > router.cursor:
        router.cursor = cursor
        router.forwarded += forwarded


def _seqs_skipped(state: State, event: ev.SeqsSkipped, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and event.first_seq > topic.head:
        first = event.first_seq
        topic.head = first + event.count - 1
        if topic.holes and topic.holes[-1][1] == first - 1:
            # A source trimmed little by little leaves one hole, which readers see once.
            first, _ = topic.holes.pop()
        topic.holes.append((first, topic.head))
        topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.RouterCreated: _router_created,
    ev.RouterConfigured: _router_configured,
    ev.RouterRemoved: _router_removed,
    ev.RecordsForwarded: _records_forwarded,
    ev.RouterAdvanced: _router_advanced,
    ev.SeqsSkipped: _seqs_skipped,
}
