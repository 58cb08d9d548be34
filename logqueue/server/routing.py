"""Which route a request is for, and what that route demands.

Owns: the table of routes with scopes and body policies, and the match of a path against it. Must
not know: what handlers do. Paths are matched as sent and their segments decoded once, so that an
encoded slash belongs to a name.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from logqueue.errors import InvalidRequest
from logqueue.server.auth import Scope
from logqueue.server.requests import Handler, StreamHandler

NO_SCOPE = Scope(0)


class Body(Enum):
    """What a route does with its body."""

    IGNORED = auto()
    REQUIRED = auto()
    """415 without a JSON content type, then 400 when empty."""
    OPTIONAL = auto()
    """Empty stands for {}; otherwise as REQUIRED."""
    NOT_EMPTY = auto()
    """400 when empty, whatever the content type; otherwise as REQUIRED."""


class Route(NamedTuple):
    """One row of the table.

    Attributes:
        pattern: The path; `*` stands for a name.
        stream: Sends a long-lived reply instead of `handler`: the route accepts `?token=`, and is
            not counted as in progress.
        probe: Answered without a key unless probe authentication is on, and at any time.
    """

    method: str
    pattern: str
    scope: Scope
    body: Body
    handler: Handler | None = None
    stream: StreamHandler | None = None
    probe: bool = False


class Match(NamedTuple):
    """What a path and method come to.

    Attributes:
        route: None when there is no such path or method.
        name: The decoded name in the path, if any.
        scope: What a key needs, also where the route does not exist.
        methods: Methods that the path knows; empty for an unknown path.
    """

    route: Route | None
    name: str
    scope: Scope
    methods: tuple[str, ...]


class Router:
    """Finds routes. The table is built once; a look-up is two dictionary reads."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._paths: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._paths.setdefault(route.pattern, {})[route.method] = route

    def match(self, method: str, raw_path: bytes) -> Match:
        """Find the route of a request.

        Raises:
            InvalidRequest: The path is no percent-encoded UTF-8.
        """
        segments = [_decoded(segment) for segment in raw_path.split(b"/")]
        name = ""
        if len(segments) in (4, 5) and segments[1] == "v0" and segments[2] == "topics":
            name = segments[3]
            segments[3] = "*" if name else ""
        elif "*" in segments:
            return Match(None, "", NO_SCOPE, ())
        if b"%" in raw_path:
            # An encoded slash must not make another path of it.
            segments = [segment.replace("/", "%2F") for segment in segments]
        pattern = "/".join(segments)
        methods = self._paths.get(pattern)
        if methods is None:
            return Match(None, name, Scope.WRITE if name else NO_SCOPE, ())
        route = methods.get(method)
        if route is not None:
            return Match(route, name, route.scope, tuple(methods))
        scope = Scope.WRITE if name else NO_SCOPE
        if method == "HEAD" and "GET" in methods:
            route = methods["GET"]
            scope = scope or route.scope
        return Match(route, name, scope, tuple(methods))


def _decoded(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not percent-encoded UTF-8") from None
