"""Routers for tests: two topics with a router between them, and what it has copied.

Owns: names and creation. Must not know: what is right for a copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.http.api import Api
from tests.http.expect import Json, ok


class Route(NamedTuple):
    """A router and its ends."""

    router: str
    source: str
    dest: str


def made(
    api: Api, topic: str, *, source: Json | None = None, dest: Json | None = None, **options: Any
) -> Route:
    """A router between two new topics of these configs."""
    found = Route(f"{topic}r", f"{topic}s", f"{topic}d")
    api.make_log(found.source, **(source or {}))
    api.make_log(found.dest, **(dest or {}))
    api.make_router(*found, **options)
    return found


def data(api: Api, topic: str) -> list[Any]:
    """The data of all records, in seq order."""
    found: list[Any] = []
    from_seq = 0
    while True:
        body = ok(api.diff(topic, from_seq=from_seq, limit=1000))
        found += [record["data"] for record in body["records"]]
        from_seq = body["next_from_seq"]
        if body["caught_up"]:
            return found


def forwarded(api: Api, router: str) -> int:
    """How many copies a router says it has made."""
    total = ok(api.router(router))["forwarded_total"]
    assert isinstance(total, int)
    return total
