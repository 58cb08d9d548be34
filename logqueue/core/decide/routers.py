"""Deciding about routers: which edges may be, and what is copied next. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.appends import new_topic, seqs_ahead
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.writes import write
from logqueue.core.edges import require_no_loop_by_router
from logqueue.core.routers import Pick, RouterState, copies, pick
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    InvalidRequest,
    RecordTooLarge,
    Throttled,
    TopicExistsIncompatible,
    TopicFull,
    TopicNotFound,
    quoted,
)
from logqueue.events.split_block import joined
from logqueue.model.config import TopicOptions, is_topic_name, require_router_name

_DEFAULT_CONFIG = TopicOptions().resolved()


def put_router(state: State, command: cmd.PutRouter, now: int) -> Decision[cmd.RouterPutResult]:
    """Create a router, or replace the options of one."""
    _require_names(command)
    source: Topic | None = state.topics.get(command.source)
    dest: Topic | None = state.topics.get(command.dest)
    if dest is None and not command.create_dest:
        raise TopicNotFound.named(command.dest)
    known: RouterState | None = state.routers.get(command.router)
    _require_one_source(state, command, known, source, dest)
    if known is not None:
        _require_same_edge(state, command, known)
    else:
        _require_room(state)
    if not command.options.allow_cycle:
        require_no_loop_by_router(state, known, command.source, command.dest)
    if known is not None:
        configured = ev.RouterConfigured(now, known.source, known.number, command.options)
        return Decision([configured], cmd.RouterPutResult(False))
    events: list[ev.Event] = []
    numbers = []
    for name, topic in ((command.source, source), (command.dest, dest)):
        if topic is None:
            created = new_topic(state, name, _DEFAULT_CONFIG, now, ahead=len(events))
            events.append(created)
            numbers.append(created.topic)
        else:
            numbers.append(topic.number)
    number = state.next_topic + len(events)
    cursor = source.head if source is not None else 0
    events.append(
        ev.RouterCreated(
            now, numbers[0], number, command.router, numbers[1], cursor, command.options
        )
    )
    return Decision(events, cmd.RouterPutResult(True))


def _require_names(command: cmd.PutRouter) -> None:
    require_router_name(command.router)
    if command.source == command.dest:
        raise InvalidRequest("`source` and `dest` must be two topics")
    for field, name in (("source", command.source), ("dest", command.dest)):
        if not is_topic_name(name):
            raise InvalidRequest(f"`{field}` {quoted(name[:80])} is not a valid topic name")


def _require_one_source(
    state: State,
    command: cmd.PutRouter,
    known: RouterState | None,
    source: Topic | None,
    dest: Topic | None,
) -> None:
    """A topic takes copies of one source only, so that its order is that source's order."""
    feeding = state.routers_in.get(dest.number, []) if dest is not None else []
    for other in feeding:
        if other is not known and (source is None or other.source != source.number):
            raise TopicExistsIncompatible(
                f"topic {quoted(command.dest)} already takes copies of "
                f"'{state.instances[other.source].name}' (router '{other.name}'); a destination "
                "has one source",
                {"topic": command.dest, "reason": "router_dest_fan_in"},
                names=(state.instances[other.source].name, other.name),
            )


def _require_same_edge(state: State, command: cmd.PutRouter, known: RouterState) -> None:
    source, dest = state.instances[known.source].name, state.instances[known.dest].name
    if (source, dest) != (command.source, command.dest):
        raise TopicExistsIncompatible(
            f"router '{known.name}' copies from '{source}' to '{dest}'; delete it first to route "
            "elsewhere",
            {
                "router": known.name,
                "reason": "router_repoint_forbidden",
                "existing_source": source,
                "existing_dest": dest,
            },
            names=(source, dest),
        )


def _require_room(state: State) -> None:
    routers_max = state.quotas.routers_max
    if routers_max and len(state.routers) >= routers_max:
        raise Throttled(
            f"the server already has its maximum of {routers_max} routers; delete one first",
            {"limit": "max_routers", "max": routers_max},
        )


def drop_router(state: State, command: cmd.DropRouter, now: int) -> Decision[cmd.RouterDropResult]:
    """Delete a router. Deleting what is not there is fine."""
    router: RouterState | None = state.routers.get(command.router)
    if router is None:
        return Decision([], cmd.RouterDropResult(False))
    dropped = ev.RouterRemoved(now, router.source, router.number)
    return Decision([dropped], cmd.RouterDropResult(True))


def forward(state: State, command: cmd.Forward, now: int) -> Decision[cmd.ForwardResult]:
    """Copy the next records of a router's source; in strict order, and nothing is passed over.

    A destination without room stalls the router at the record that does not fit.
    """
    router = state.routers_by_number.get(command.router)
    if router is None:
        return Decision([], cmd.ForwardResult(0, False, False))
    source = state.instances[router.source]
    dest = state.instances[router.dest]
    if router.cursor < source.floor:
        return _over_the_gap(router, source, dest, now)
    found = pick(router, source, now, state.kept_from)
    if not found.seqs:
        advanced = ev.RouterAdvanced(now, dest.number, router.number, found.cursor)
        events: list[ev.Event] = [advanced] if found.cursor > router.cursor else []
        behind = found.cursor < source.head
        return Decision(events, cmd.ForwardResult(0, behind, False))
    fitting = _fitting(state, router, source, dest, found, now)
    if fitting is None:
        return Decision([], cmd.ForwardResult(0, True, True))
    count = len(fitting.seqs)
    is_behind = fitting.cursor < source.head
    return Decision(fitting.events, cmd.ForwardResult(count, is_behind, False))


class _Fitting(NamedTuple):
    """As much of a pick as its destination has room for."""

    seqs: Sequence[int]
    cursor: int
    events: list[ev.Event]


def _fitting(
    state: State, router: RouterState, source: Topic, dest: Topic, found: Pick, now: int
) -> _Fitting | None:
    """Copy all that was picked, or else a half of it, down to one record; None without room."""
    seqs = found.seqs
    cursor = found.cursor
    while seqs:
        try:
            events = _copy(state, router, source, dest, found, seqs, cursor, now)
        except (RecordTooLarge, TopicFull, Throttled):
            seqs = seqs[: len(seqs) // 2]
            cursor = seqs[-1] if seqs else router.cursor
        else:
            return _Fitting(seqs, cursor, events)
    return None


def _over_the_gap(
    router: RouterState, source: Topic, dest: Topic, now: int
) -> Decision[cmd.ForwardResult]:
    """The source was trimmed before the router got there: readers of the copies see a loss."""
    count = source.floor - router.cursor
    first_seq = dest.head + 1
    reserved = 0
    if dest.config.durability == "disk" and dest.head + count > dest.seqs_reserved:
        reserved = dest.head + count + seqs_ahead(count)
    events: list[ev.Event] = [
        ev.SeqsSkipped(now, dest.number, first_seq, count, reserved),
        ev.RouterAdvanced(now, dest.number, router.number, source.floor),
    ]
    behind = source.floor < source.head
    return Decision(events, cmd.ForwardResult(0, behind, False))


def _copy(
    state: State,
    router: RouterState,
    source: Topic,
    dest: Topic,
    found: Pick,
    seqs: Sequence[int],
    cursor: int,
    now: int,
) -> list[ev.Event]:
    block = copies(router, source, seqs)
    assert block is not None, "only live records are picked"
    router.made = seqs, block
    count = len(seqs)
    *evictions, appended = write(state, dest, joined(block), count, now, hops=found.hops + 1)
    assert isinstance(appended, ev.RecordsAppended)
    if not found.is_logged or not dest.config.is_logged:
        advanced = ev.RouterAdvanced(now, dest.number, router.number, cursor, count)
        return [*evictions, appended, advanced]
    consecutive = seqs[-1] - seqs[0] + 1 == count
    return [
        *evictions,
        ev.RecordsForwarded(
            now,
            dest.number,
            router.number,
            cursor,
            appended.first_seq,
            count,
            seqs[0],
            [] if consecutive else list(seqs),
            appended.cap_floor,
            appended.seqs_reserved,
            appended.size,
            appended.dropped,
        ),
    ]
