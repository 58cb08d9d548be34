"""Which route a request is for, and what that route demands.

Owns: the routes made of the table of operations and the handlers registered for them, and the match
of a path against them. Must not know: single operations, what handlers do. Paths are matched as
sent and their segments decoded once, so that an encoded slash belongs to a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from logqueue.api.operations.row import Body, KeyPolicy, Kind, Operation, StepsReader
from logqueue.errors import InvalidRequest
from logqueue.model.scopes import NO_SCOPE, Scope
from logqueue.server.http.requests import Handler, Refuse, SocketHandler, StreamHandler

_FALLBACK_SCOPES = {
    "topics": Scope.WRITE,
    "routers": Scope.ADMIN,
    "schedules": Scope.ADMIN,
    "batches": Scope.WRITE,
    "producers": NO_SCOPE,
}
"""Collections whose paths go on with a name that the key's prefixes must cover, and what a key
needs for a method or sub-path of it that does not exist."""


F = TypeVar("F", bound=Callable[..., Any])

BODY_BYTES_MAX = 1 << 20
"""More than all that a call may name, and decoded in some milliseconds."""

_JSON_TYPES = (b"application/json",)
_MERGE_PATCH_TYPES = (*_JSON_TYPES, b"application/merge-patch+json")


class Route(NamedTuple):
    """One row of the table.

    Attributes:
        pattern: The path; `*` is a name, or the id of one item of a topic. `**` at the end is
            whatever follows.
        stream: Sends a long-lived reply instead of `handler`: the route accepts `?token=`, and is
            not counted as in progress.
        probe: Answered without a key unless probe authentication is on, and at any time.
        socket: Makes a WebSocket of the connection when the request offers one; not counted as in
            progress. `handler` answers those that do not.
        in_steps: Reads large bodies for the handler, as `Request.document`.
        bulk: Its answer may be a `Download`.
        pipelined: See `Operation.pipelined`.
        is_read: See `Operation.is_read`.
        late_key: The handler itself decides which key is good enough; none may be.
        body_bytes_max: The longest body, in bytes, unless it is read in steps.
        refuse: Makes the reply to a request that is refused; None for that of the API.
    """

    method: str
    pattern: str
    scope: Scope
    body: Body
    handler: Handler | None = None
    stream: StreamHandler | None = None
    probe: bool = False
    late_key: bool = False
    socket: SocketHandler | None = None
    in_steps: StepsReader | None = None
    bulk: bool = False
    pipelined: bool = False
    is_read: bool = True
    body_bytes_max: int = BODY_BYTES_MAX
    refuse: Refuse | None = None

    def takes(self, declared: bytes | None) -> bool:
        """Whether a body of this content type is one for the route."""
        accepted = _MERGE_PATCH_TYPES if self.body is Body.MERGE_PATCH else _JSON_TYPES
        return declared is not None and declared.lstrip().lower().startswith(accepted)


_SERVES = "_logqueue_serves"


def serves(operation: str, *, plain: bool = False) -> Callable[[F], F]:
    """Register a method as the handler of an operation.

    Args:
        operation: Its name.
        plain: It answers requests that do not offer to go on as a WebSocket.
    """

    def register(handler: F) -> F:
        setattr(handler, _SERVES, (operation, plain))
        return handler

    return register


def routes_of(operations: Iterable[Operation], owners: Iterable[object]) -> list[Route]:
    """A route for each operation, with the handlers that methods of some objects register.

    Raises:
        ValueError: An operation has no handler, or a handler no operation.
    """
    handlers = dict(_registered(owners))
    routes = [_route(operation, handlers) for operation in operations]
    if handlers:
        raise ValueError(f"handlers of operations that have no row: {sorted(handlers)}")
    return routes


def _registered(owners: Iterable[object]) -> Iterator[tuple[tuple[str, bool], Any]]:
    for owner in owners:
        for name, method in vars(type(owner)).items():
            place = getattr(method, _SERVES, None)
            if place is not None:
                yield place, getattr(owner, name)


def _route(operation: Operation, handlers: dict[tuple[str, bool], Any]) -> Route:
    kind = operation.kind
    try:
        serve = handlers.pop((operation.name, False))
        plain = handlers.pop((operation.name, True)) if kind is Kind.SOCKET else serve
    except KeyError as missing:
        raise ValueError(f"no handler is registered for {missing}") from None
    return Route(
        operation.method,
        operation.pattern,
        operation.scope,
        operation.body_policy,
        handler=None if kind is Kind.STREAM else plain,
        stream=serve if kind is Kind.STREAM else None,
        probe=operation.key is KeyPolicy.PROBE,
        late_key=operation.key is KeyPolicy.HANDLER,
        socket=serve if kind is Kind.SOCKET else None,
        in_steps=operation.in_steps,
        bulk=kind is Kind.DOWNLOAD,
        pipelined=operation.pipelined,
        is_read=operation.is_read,
    )


MATCHES_MAX = 4096
MATCHED_PATH_BYTES_MAX = 256
"""Bounds of the memory of paths that were found: clients ask for the same few again and again."""


class Match(NamedTuple):
    """What a path and method come to.

    Attributes:
        route: None when there is no such path or method.
        scope: What a key needs, also where the route does not exist.
        methods: Methods that the path knows; empty for an unknown path.
        name: The first name in the path, decoded: of a topic, router, watch session.
        item: The second one: one thing of the first (a seq, a key).
        guarded: The name of a topic, router or producer that the key's prefixes must cover; "" for
            none.
    """

    route: Route | None
    scope: Scope = NO_SCOPE
    methods: tuple[str, ...] = ()
    name: str = ""
    item: str = ""
    guarded: str = ""


class _PathNode:
    """A place in the tree of paths."""

    __slots__ = ("children", "methods", "named", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _PathNode] = {}
        self.named: _PathNode | None = None
        self.rest: _PathNode | None = None
        self.methods: dict[str, Route] = {}

    def child(self, segment: str) -> _PathNode:
        """The place behind a segment of a pattern, made when there is none."""
        if segment == "**":
            self.rest = self.rest or _PathNode()
            return self.rest
        if segment != "*":
            return self.children.setdefault(segment, _PathNode())
        if self.named is None:
            self.named = _PathNode()
        return self.named


class RouteTable:
    """Finds routes. The tree is built once; a look-up is a dictionary read for each segment."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._root = _PathNode()
        self._matched: dict[tuple[str, bytes], Match] = {}
        for route in routes:
            node = self._root
            for segment in route.pattern.split("/"):
                node = node.child(segment)
            node.methods[route.method] = route

    def match(self, method: str, raw_path: bytes) -> Match:
        """Find the route of a request.

        Raises:
            InvalidRequest: The path is not percent-encoded UTF-8.
        """
        match = self._matched.get((method, raw_path))
        if match is None:
            match = self._find(method, raw_path)
            if len(raw_path) <= MATCHED_PATH_BYTES_MAX and match.route is not None:
                if len(self._matched) == MATCHES_MAX:
                    self._matched.clear()
                self._matched[method, raw_path] = match
        return match

    def _find(self, method: str, raw_path: bytes) -> Match:
        segments = [_decoded(segment) for segment in raw_path.split(b"/")]
        fallback, guarded = _fallback(segments)
        names: list[str] = []
        node: _PathNode | None = self._root
        for segment in segments:
            assert node is not None
            if node.rest is not None:
                node = node.rest
                break
            following = node.children.get(segment)
            if following is None and segment:
                following = node.named
                names.append(segment)
            node = following
            if node is None:
                break
        if node is None or not node.methods:
            return Match(None, fallback, (), guarded, "", guarded)
        methods = tuple(node.methods)
        name = names[0] if names else ""
        item = names[1] if len(names) > 1 else ""
        route = node.methods.get(method)
        if route is not None:
            return Match(route, route.scope, methods, name, item, guarded)
        scope = fallback
        if method == "HEAD" and "GET" in methods:
            route = node.methods["GET"]
            scope = scope or route.scope
        return Match(route, scope, methods, name, item, guarded)


def _fallback(segments: list[str]) -> tuple[Scope, str]:
    """What a key needs where there is no route, and the name that its prefixes must cover."""
    if len(segments) > 3 and segments[1] == "v0" and segments[3]:
        scope = _FALLBACK_SCOPES.get(segments[2])
        if scope is not None and (segments[2] != "routers" or len(segments) == 4):
            return scope, segments[3]
    return NO_SCOPE, ""


def _decoded(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not percent-encoded UTF-8") from None
