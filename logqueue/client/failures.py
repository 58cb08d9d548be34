"""Failures as a caller meets them: refusals decoded, and what happens between client and server.

Owns: the error of every reply that is not a success, and the classes for calls that got none. Must
not know: routes, retries, how a reply was fetched.

    LogqueueError
    ├── (the refusals of logqueue.errors)
    ├── ConnectionFailed
    │   ├── Unreachable    nothing was sent: no effect
    │   │   └── TlsFailed  no trust between both ends, and no retry will change that
    │   └── LostReply      sent, but no reply came: the effect is unknown
    │       └── Silence    a stream said nothing for too long
    └── UnexpectedReply    the reply is not one of this API
        └── GatewayFailed  429, 502, 503 or 504 from something in between: it may pass
"""

from __future__ import annotations

import msgspec

from logqueue import errors
from logqueue.errors import (
    LogqueueError,
    quoted,
)
from logqueue.shapes import ErrorReply

TEXT_SHOWN_MAX = 200
GATEWAY_STATUSES = frozenset({429, 502, 503, 504})


class ConnectionFailed(LogqueueError):
    """No reply came."""

    code = "connection_failed"
    status = 0
    retryable = True
    had_no_effect = False


class Unreachable(ConnectionFailed):
    """No connection to the server: nothing was sent, so nothing happened."""

    code = "unreachable"
    had_no_effect = True


class TlsFailed(Unreachable):
    """The TLS handshake failed: a certificate is not trusted, or one end does not speak TLS."""

    code = "tls_failed"
    retryable = False


class LostReply(ConnectionFailed):
    """The connection ended, or time ran out, before the reply came: the effect is unknown."""

    code = "lost_reply"


class Silence(LostReply):
    """A stream said nothing for too long; the server may believe it still open."""


class UnexpectedReply(LogqueueError):
    """The reply is none that this API gives; is the URL that of a logqueue server?"""

    code = "unexpected_reply"
    status = 0
    had_no_effect = False


class GatewayFailed(UnexpectedReply):
    """Something between client and server answered in its place; the effect is unknown."""

    code = "gateway_failed"
    retryable = True


_REFUSALS: dict[str, type[LogqueueError]] = {
    kind.code: kind for kind in reversed([*errors.every_error()])
}
_BY_REASON: dict[object, type[LogqueueError]] = {
    "storage_read_only": errors.StorageReadOnly,
    "storage_full": errors.StorageFull,
    "storage_unreadable": errors.StorageUnreadable,
}
_read_envelope = msgspec.json.Decoder(ErrorReply).decode


def refusal(status: int, body: bytes, retry_after: str | None) -> LogqueueError:
    """The error that a reply says.

    Args:
        retry_after: The header of that name; only whole seconds count.
    """
    try:
        envelope = _read_envelope(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return unexpected(status, body)
    kind = _REFUSALS.get(envelope.code)
    if kind is None:
        return unexpected(status, body)
    if kind is errors.Internal and envelope.detail is not None:
        kind = _BY_REASON.get(envelope.detail.get("reason"), kind)
    error = kind(envelope.message or envelope.code, envelope.detail)
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        error.retry_after_s = int(retry_after[:6])
    return error


def unexpected(status: int, body: bytes) -> UnexpectedReply:
    """The error for a reply that does not fit the API."""
    text = body[:TEXT_SHOWN_MAX].decode("utf-8", "replace")
    kind = GatewayFailed if status in GATEWAY_STATUSES else UnexpectedReply
    return kind(
        f"HTTP {status} with a body that no logqueue server sends: {quoted(text)}",
        {"status": status},
    )
