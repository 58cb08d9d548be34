"""What every reply of the contract must look like, and bounded waiting.

Owns: the error envelope, the performance block, compactness. Must not know: single routes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

from tests.http.rawhttp import RawReply

Json = dict[str, Any]
Reply = httpx.Response | RawReply
T = TypeVar("T")

ANY_DETAIL: Mapping[str, Any] = {"any detail, or none": True}
EVENTUALLY_S = 60.0
POLL_S = 0.02
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def ok(reply: Reply, status: int = 200) -> Json:
    """A good JSON reply with its performance block; returns the body."""
    body = plain_ok(reply, status)
    performance = body["performance"]
    assert isinstance(performance, dict), body
    spent = performance["server_total_ms"]
    assert isinstance(spent, float | int) and not isinstance(spent, bool) and spent >= 0, body
    return body


def plain_ok(reply: Reply, status: int = 200) -> Json:
    """A good JSON object reply, compact; returns the body."""
    content, headers = content_of(reply), headers_of(reply)
    assert status_of(reply) == status, (status_of(reply), content[:500])
    assert headers["content-type"] == "application/json", headers
    body = json.loads(content)
    assert isinstance(body, dict), body
    assert_compact(content)
    assert "error" not in body, body
    return body


def refused(
    reply: Reply, status: int, code: str, detail: Mapping[str, Any] | None = ANY_DETAIL
) -> Json:
    """A refusal in the envelope, exactly; returns its detail (empty when there is none).

    detail: None means that there must be none; the default accepts anything.
    """
    content, headers = content_of(reply), headers_of(reply)
    assert status_of(reply) == status, (status_of(reply), content[:500])
    assert headers["content-type"] == "application/json", headers
    body = json.loads(content)
    assert_compact(content)
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) in ({"code", "message"}, {"code", "message", "detail"}), body
    assert error["code"] == code, body
    assert isinstance(error["message"], str) and error["message"].strip(), body
    if "detail" in error:
        assert isinstance(error["detail"], dict), body
    if detail is None:
        assert "detail" not in error, body
    elif detail is not ANY_DETAIL:
        assert error.get("detail") == dict(detail), body
    if status in (429, 503):
        assert headers.get("retry-after") == "1", headers
    found = error.get("detail", {})
    assert isinstance(found, dict)
    return found


def assert_compact(content: bytes) -> None:
    """No blanks between tokens, that is outside of strings."""
    outside = STRING.sub(b"", content)
    assert not re.search(rb"\s", outside), f"blanks between tokens: {content[:300]!r}"


def status_of(reply: Reply) -> int:
    """The status, whichever client read the reply."""
    return reply.status if isinstance(reply, RawReply) else reply.status_code


def content_of(reply: Reply) -> bytes:
    """The body bytes, whichever client read the reply."""
    return reply.body if isinstance(reply, RawReply) else reply.content


def headers_of(reply: Reply) -> Mapping[str, str]:
    """The headers, whichever client read the reply."""
    return reply.headers


def eventually(check: Callable[[], T], *, timeout_s: float = EVENTUALLY_S) -> T:
    """Repeat a check until it neither raises AssertionError nor gives a falsy value."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = check()
            if found:
                return found
            problem: AssertionError | None = None
        except AssertionError as error:
            problem = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s") from problem
        time.sleep(POLL_S)


def now_ms() -> int:
    """This machine's wall clock, which is the server's as well."""
    return time.time_ns() // 1_000_000
