"""The limits of a server, and how much of each is in use.

Owns: which number belongs to which setting. Must not know: who enforces a limit, who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from logqueue.server.service import Service
from logqueue.server.settings import OPTIONS

_PURPOSE = {
    option.name: option.purpose.removeprefix("maximum ").partition(";")[0] for option in OPTIONS
}
_VARIABLE = {option.name: option.variable for option in OPTIONS}


class LimitInUse(NamedTuple):
    """A limit in use; `max` is 0 for unlimited."""

    name: str
    used: int
    max: int

    @property
    def text(self) -> str:
        """What is limited."""
        return _PURPOSE[self.name]

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return _VARIABLE[self.name]


def limits_in_use(service: Service) -> Iterator[LimitInUse]:
    """All limits; those per key by the key that uses most. The work grows with the keys only."""
    settings, memory = service.settings, service.memory
    state = service.engine.state if service.engine is not None else None
    for name, used in (
        ("max_topics", len(state.topics) if state is not None else 0),
        ("max_routers", len(state.routers) if state is not None else 0),
        ("max_producers", len(state.producers) if state is not None else 0),
        ("max_schedules", len(state.schedules) if state is not None else 0),
        ("max_batches", len(state.batches) if state is not None else 0),
        ("max_total_bytes", state.live_bytes if state is not None else 0),
        ("max_watch_sessions", len(service.watch_sessions)),
        ("max_sse_connections", service.streams),
        ("max_sse_connections_per_key", _most(service.streams_by_key)),
        ("max_inflight_per_key", _most(service.inflight)),
        ("max_client_bytes", memory.used),
        ("max_client_bytes_per_key", _most(memory.used_by_key)),
    ):
        yield LimitInUse(name, used, getattr(settings, name))


def _most(by_key: Counter[str]) -> int:
    return max(by_key.values(), default=0)
