"""Request heads that were admitted before, so that they are neither parsed nor checked again.

Owns: which heads are remembered, under what, and for how long. Must not know: connections, bodies,
what an operation does.

Clients send the same few heads again and again, and only the length of the body differs. So a head
is known by all its bytes but the digits of `content-length`, and those are read each time. A hit
means exactly what the general way (`head.py`, `HostPolicy`, `HttpApi.admit`) found for the same
bytes: its result depends on them, on the keys of the server, and on settings that never change.
When the keys change, everything is forgotten. What depends on anything else (requests in progress,
topics, the body) is checked for every request.

Heads hold secrets, so none is kept: the memo has digests of them under a key of its own, and of a
known head only what handlers read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from logqueue.server.auth import Key, KeyRing, query_token
from logqueue.server.http.head import RequestHead
from logqueue.server.http.requests import HEADERS_READ, HttpRequest
from logqueue.server.http.routing import Route

HEADS_MAX: Final = 1024
"""Heads of one generation; there are two, so a head in use outlives any number of others."""
KNOWN_HEAD_BYTES_MAX: Final = 1024
DIGEST_BYTES: Final = 16

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength:[ \t]*([0-9]{1,9})[ \t]*\r\n").search
_NOT_KEPT: Final = frozenset((b"authorization",))
_NOT_SIMPLE: Final = (b"expect", b"idempotency-key", b"transfer-encoding", b"upgrade")
"""What makes two requests with the same head differ, or is too rare to be worth a thought."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """What an admitted head came to.

    Attributes:
        query: Behind the path, as sent; without a secret.
        headers: Those that handlers read, without secrets.
        has_length: It has a `content-length`.
        is_json: A body behind it has a content type that the route takes.
        body_bytes_max: The longest body that the route takes; -1 when it is not read.
    """

    method: str
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    route: Route
    name: str
    item: str
    key: Key | None
    has_length: bool
    is_json: bool
    body_bytes_max: int


class HeadMemo:
    """The known heads of one server."""

    def __init__(self) -> None:
        self._keyed = blake2b(digest_size=DIGEST_BYTES, key=os.urandom(32))
        self._ring: KeyRing | None = None
        self._young: dict[bytes, KnownHead] = {}
        self._old: dict[bytes, KnownHead] = {}

    def find(self, data: bytes, at: int, ring: KeyRing) -> tuple[KnownHead, int, int] | None:
        """The head that begins at a place, if it is known.

        Args:
            data: What a client sent.
            at: Where a request begins.
            ring: The keys of the server now.

        Returns:
            The head, where the body begins, and its length; None for a head that is not known, not
            whole, or has a body that the route does not take.
        """
        end = data.find(b"\r\n\r\n", at, at + KNOWN_HEAD_BYTES_MAX)
        if end < 0 or ring is not self._ring:
            return None
        length = _LENGTH(data, at, end + 2)
        digest = self._digest(data, at, end, length)
        known = self._young.get(digest)
        if known is None:
            known = self._old.pop(digest, None)
            if known is None:
                return None
            self._put(digest, known)
        if length is None:
            return None if known.has_length else (known, end + 4, 0)
        size = int(length[1])
        if not known.has_length or size > known.body_bytes_max:
            return None
        return known, end + 4, size

    def keep(
        self, text: bytes, head: RequestHead, request: HttpRequest, route: Route, limit: int,
        ring: KeyRing,
    ) -> None:  # fmt: skip
        """Remember a head that was just admitted, if it is a simple one.

        Args:
            text: All of it, up to the blank line.
            head: What it says.
            request: The request, with its key and what its path names.
            route: Where it goes.
            limit: The longest body that the route takes, in bytes; -1 when it is not read.
            ring: The keys of the server now.
        """
        fields = head.fields
        if (
            len(text) > KNOWN_HEAD_BYTES_MAX
            or not head.keep_alive
            or (head.query and not _is_query_kept(head, route))
            or route.handler is None
            or route.socket is not None
            or route.late_key
            or route.method != head.method
            or any(name in fields for name in _NOT_SIMPLE)
        ):
            return
        length = _LENGTH(text, 0, len(text) - 2)
        has_length = b"content-length" in fields
        if has_length is (length is None):
            return
        if ring is not self._ring:
            self._ring = ring
            self._young, self._old = {}, {}
        known = KnownHead(
            request.method,
            request.raw_path,
            head.query,
            [one for one in head.headers if one[0] in HEADERS_READ - _NOT_KEPT],
            route,
            request.name,
            request.item,
            request.key,
            has_length,
            route.takes(request.header(b"content-type")),
            limit,
        )
        self._put(self._digest(text, 0, len(text) - 4, length), known)

    def _digest(self, data: bytes, at: int, end: int, length: re.Match[bytes] | None) -> bytes:
        """What a head is known by. Two heads have the same only if they differ in nothing but the
        digits of their one length."""
        digest = self._keyed.copy()
        if length is None:
            digest.update(data[at:end])
        else:
            start, stop = length.span(1)
            digest.update(data[at:start] + data[stop:end])
        return digest.digest()

    def _put(self, digest: bytes, known: KnownHead) -> None:
        if len(self._young) >= HEADS_MAX:
            self._young, self._old = {}, self._young
        self._young[digest] = known


def _is_query_kept(head: RequestHead, route: Route) -> bool:
    """Whether a query is one of few and no secret. Without a body it says which record is wanted,
    or whose key it is, and seldom comes twice."""
    has_body = b"content-length" in head.fields
    return has_body and route.stream is None and query_token(head.query) is None
