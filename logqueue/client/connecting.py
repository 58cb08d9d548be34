"""From httpx to this client's terms: where to connect, with which headers, what went wrong.

Owns: URL, key and timeouts; the class of every failure between client and server. Must not know:
routes, retries.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from logqueue import __version__
from logqueue.client.calls import Request
from logqueue.client.failures import LostReply, Unreachable, refusal, unexpected

URL_DEFAULT = "http://127.0.0.1:4000"
CONNECT_TIMEOUT_S = 5.0
KEEPALIVE_EXPIRY_S = 4.0
"""Below the server's own, so that a call rarely meets a connection that is being closed."""
IDLE_CONNECTIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is and who is asking.

    Attributes:
        node: The name under which leases are held unless a call names another.
        timeout_s: How long a reply may take beyond what its request asks to wait.
    """

    url: str
    token: str | None
    node: str
    timeout_s: float

    @classmethod
    def of(cls, url: str | None, token: str | None, node: str | None, timeout_s: float) -> Address:
        """What was given, else what LOGQUEUE_URL and LOGQUEUE_TOKEN say, else the defaults.

        Raises:
            ValueError: The URL is none, or the token can not go into a header.
        """
        where = (url or os.environ.get("LOGQUEUE_URL") or URL_DEFAULT).rstrip("/")
        if not where.startswith(("http://", "https://")) or not httpx.URL(where).host:
            raise ValueError(f"{where!r} is no URL of a server; write http://host:port")
        key = os.environ.get("LOGQUEUE_TOKEN") if token is None else token
        if key and not (key.isascii() and key.isprintable()):
            raise ValueError("the token must be printable ASCII text")
        return cls(where, key or None, node or _own_name(), timeout_s)

    def settings(self) -> dict[str, Any]:
        """Arguments for httpx clients of either kind."""
        headers = {"accept-encoding": "identity", "user-agent": f"logqueue/{__version__}"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return {
            "base_url": self.url,
            "headers": headers,
            "limits": httpx.Limits(
                max_connections=None,
                max_keepalive_connections=IDLE_CONNECTIONS_MAX,
                keepalive_expiry=KEEPALIVE_EXPIRY_S,
            ),
            # Certificates are loaded only where they are looked at: it takes longer than a call.
            "verify": self.url.startswith("https://"),
            # A queue is not reached through the proxy that the environment names for the web.
            "trust_env": False,
        }

    def timeout(self, wait_ms: int) -> httpx.Timeout:
        """Bounds for a call whose reply the server may hold for so long."""
        return httpx.Timeout(self.timeout_s + wait_ms / 1000, connect=CONNECT_TIMEOUT_S)

    def silence(self, silence_ms: int) -> httpx.Timeout:
        """Bounds for a stream that is never silent for longer than this."""
        return httpx.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S, read=silence_ms / 1000)


def _own_name() -> str:
    return f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(3)}"


def headers(request: Request, content: bytes | None) -> dict[str, str]:
    """The headers of a request, beyond those of every request."""
    if content is None:
        wanted = {} if request.range is None else {"range": request.range}
        return {"accept": request.accept, **wanted}
    return {"accept": request.accept, "content-type": "application/json"}


@contextmanager
def failures_named(timeout_is: type[LostReply] = LostReply) -> Iterator[None]:
    """Turns what httpx raises into this client's errors."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
        raise Unreachable(f"no connection to the server: {_text(error)}") from error
    except httpx.ReadTimeout as error:
        raise timeout_is(f"no reply in time: {_text(error)}") from error
    except httpx.TransportError as error:
        raise LostReply(f"the connection broke before the reply: {_text(error)}") from error


def _text(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def require_success(status: int, body: bytes, head: Mapping[str, str]) -> None:
    """Raise what a reply says unless it says success.

    Raises:
        LogqueueError: The refusal; UnexpectedReply when it is none of this API's.
    """
    if 200 <= status < 300:
        return
    raise refusal(status, body, head.get("retry-after"))


def require_stream(status: int, head: Mapping[str, str]) -> None:
    """Refuse a success that is no event stream.

    Raises:
        UnexpectedReply: It is something else.
    """
    kind = head.get("content-type", "")
    if not kind.startswith("text/event-stream"):
        raise unexpected(status, f"content-type {kind}".encode())
