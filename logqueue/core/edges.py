"""Where records go by themselves: through routers, and to archives and dead-letter topics.

Owns: the search for loops that have a router in them. Such a loop never ends by itself: a router
copies what its source keeps. Changes nothing. Must not know: commands, events.

Topics are named, not numbered: an archive or a dead-letter topic may be created later. Without a
router a loop only moves records, at the pace of claims and expiries; that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from logqueue.core.routers import RouterState
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    RouterCycle,
)
from logqueue.model.config import TopicOptions

Step = tuple[str, bool]
"""A topic, and whether a router is among the edges that lead there."""

COPY_FIELDS = ("archive", "dead_letter")


def require_no_loop_by_router(
    state: State, known: RouterState | None, source: str, dest: str
) -> None:
    """Refuse a router whose destination already reaches its source.

    Args:
        state: Read only.
        known: The router itself if it exists.
        source, dest: Its ends, which need not exist.

    Raises:
        RouterCycle: It does.
    """

    def leads(name: str) -> Iterator[Step]:
        topic = state.topics.get(name)
        if topic is not None:
            yield from ((target, False) for _, target in copy_targets(topic.config))
            for router in state.routers_out.get(topic.number, ()):
                if router is not known:
                    yield state.instances[router.dest].name, True

    cycle = _way_back(source, (dest, True), leads)
    if cycle is not None:
        raise RouterCycle(
            f"this router would close a loop: {_shown(cycle)} (archives and dead-letter topics "
            "count); route elsewhere, or set `allow_cycle` to allow it",
            {"cycle": cycle},
            names=cycle,
        )


def require_no_loop_by_config(
    state: State, name: str, config: TopicOptions, present: TopicOptions | None = None
) -> None:
    """Refuse an archive or a dead-letter topic from which routers lead back to the queue.

    Routers with `allow_cycle` do not count.

    Args:
        state: Read only.
        name: The topic, which need not exist.
        config: What it is to have.
        present: What it has; what stays is not looked at again.

    Raises:
        RouterCycle: They do.
    """
    if not state.routers:
        return
    stays = {*copy_targets(present)} if present is not None else set()

    def leads(at: str) -> Iterator[Step]:
        topic: Topic | None = state.topics.get(at)
        if topic is not None:
            yield from ((target, False) for _, target in copy_targets(topic.config))
            for router in state.routers_out.get(topic.number, ()):
                if not router.options.allow_cycle:
                    yield state.instances[router.dest].name, True

    for field, target in copy_targets(config):
        if (field, target) in stays:
            continue
        cycle = _way_back(name, (target, False), leads)
        if cycle is not None:
            raise RouterCycle(
                f"`{field}` '{target}' would close a loop with a router: {_shown(cycle)}; use "
                "another topic, or set `allow_cycle` on the router",
                {"cycle": cycle},
                names=cycle,
            )


def copy_targets(config: TopicOptions) -> Iterator[tuple[str, str]]:
    """The fields of a queue's config that name a topic for copies, and those topics."""
    if config.is_queue:
        for field in COPY_FIELDS:
            target = getattr(config, field)
            if target is not None:
                yield field, target


def _way_back(start: str, first: Step, leads: Callable[[str], Iterator[Step]]) -> list[str] | None:
    """The shortest loop from a topic over a first edge, with a router in it; None without one."""
    came_from: dict[Step, Step | None] = {first: None}
    pending = [first]
    for step in pending:
        name, routed = step
        if name == start:
            if not routed:
                continue
            path = [name]
            at = came_from[step]
            while at is not None:
                path.append(at[0])
                at = came_from[at]
            return [start, *reversed(path)]
        for target, by_router in leads(name):
            further = (target, routed or by_router)
            if further not in came_from:
                came_from[further] = step
                pending.append(further)
    return None


def _shown(cycle: list[str]) -> str:
    return " -> ".join(map(repr, cycle))
