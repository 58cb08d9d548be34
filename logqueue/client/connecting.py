"""From httpx to this client's terms: where to connect, with which headers, what went wrong.

Owns: URL, key and timeouts; the class of every failure between client and server. Must not know:
routes, retries.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from logqueue.client.calls import CallRequest
from logqueue.client.failures import (
    LostReply,
    Silence,
    TlsFailed,
    UnexpectedReply,
    Unreachable,
    refusal,
    unexpected,
)
from logqueue.client.lazy import httpx
from logqueue.client.servers import Servers
from logqueue.errors import LogqueueError, NotWriter, Unauthorized
from logqueue.version import __version__

URL_DEFAULT = "http://127.0.0.1:4000"
TIMEOUT_S = 10.0
"""How long a reply may take. A part of what retries have in all: a timeout leaves room for more."""

CONNECT_TIMEOUT_S = 3.0
KEEPALIVE_EXPIRY_S = 4.0
"""Below the server's own, so that a call rarely meets a connection that is being closed."""
IDLE_CONNECTIONS_MAX = 100

BEHIND_HEADER = "logqueue-behind-ms"
"""In replies of a standby: by how many milliseconds they may be old."""
WRITER_HEADER = "logqueue-writer"
"""In replies of a standby: the URL of the writer, where it is known."""

Urls = str | Sequence[str]
"""The URL of a server, or those of all servers of one log: several, or one text with commas."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are and who is asking.

    Attributes:
        urls: At least one; of several, one is the writer.
        node: The name under which leases are held unless a call names another.
        timeout_s: How long a reply may take beyond what its request asks to wait.
        connect_timeout_s: How long a connection may take to be made.
    """

    urls: tuple[str, ...]
    token: str | None = field(repr=False)
    node: str
    timeout_s: float
    connect_timeout_s: float

    @classmethod
    def of(
        cls,
        url: Urls | None,
        token: str | None,
        node: str | None,
        timeout_s: float,
        connect_timeout_s: float,
    ) -> Address:
        """What was given, else what LOGQUEUE_URL and LOGQUEUE_TOKEN say, else the defaults.

        Raises:
            ValueError: A URL, the token or a timeout is invalid.
        """
        key = os.environ.get("LOGQUEUE_TOKEN") if token is None else token
        # A key read from a file ends with a newline.
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ValueError(
                "invalid API key: it must be printable ASCII text without spaces; check token= or "
                "LOGQUEUE_TOKEN"
            )
        if not (timeout_s > 0 and connect_timeout_s > 0):
            raise ValueError("timeout_s and connect_timeout_s must be above 0 seconds")
        if url is None or url == "":
            url = os.environ.get("LOGQUEUE_URL") or URL_DEFAULT
        where = urls_of(url)
        return cls(where, key or None, node or _own_name(), timeout_s, connect_timeout_s)

    def settings(self) -> dict[str, Any]:
        """Arguments for httpx clients of either kind."""
        headers = {"accept-encoding": "identity", "user-agent": f"logqueue/{__version__}"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return {
            "headers": headers,
            "limits": httpx.Limits(
                max_connections=None,
                max_keepalive_connections=IDLE_CONNECTIONS_MAX,
                keepalive_expiry=KEEPALIVE_EXPIRY_S,
            ),
            # Certificates are loaded only where they are looked at: it takes longer than a call.
            "verify": any(url.startswith("https://") for url in self.urls),
            # A queue is not reached through the proxy that the environment names for the web.
            "trust_env": False,
        }

    def timeout(self, wait_ms: int) -> httpx.Timeout:
        """Bounds for a call whose reply the server may hold for so long."""
        return httpx.Timeout(self.timeout_s + wait_ms / 1000, connect=self.connect_timeout_s)

    def silence(self, silence_ms: int) -> httpx.Timeout:
        """Bounds for a stream that is never silent for longer than this."""
        return httpx.Timeout(self.timeout_s, connect=self.connect_timeout_s, read=silence_ms / 1000)


def _own_name() -> str:
    return f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(3)}"


def urls_of(given: Urls) -> tuple[str, ...]:
    """The URLs, each once and without a slash at its end.

    Args:
        given: One text, with a comma between URLs, or one text for each.

    Raises:
        ValueError: One is not the URL of a server.
    """
    texts = given.split(",") if isinstance(given, str) else given
    urls = [_valid_url(text.strip() if isinstance(text, str) else text) for text in texts]
    return Servers(urls).urls


def _valid_url(text: str) -> str:
    """The URL without a slash at its end.

    Raises:
        ValueError: It is not the URL of a server.
    """
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL()
    if url.userinfo:
        # Not repeated here: it holds a secret.
        raise ValueError("the URL holds a user or password: use token= or LOGQUEUE_TOKEN instead")
    if url.scheme not in ("http", "https") or not re.fullmatch(r"[^\s%]+", url.host):
        raise ValueError(f"invalid server URL '{text}': use http://host:port")
    if url.port is not None and not 0 < url.port <= 65_535:
        raise ValueError(f"invalid server URL '{text}': ports go from 1 to 65535")
    if url.path.rstrip("/").endswith("/v0"):
        raise ValueError(f"invalid server URL '{text}': leave out the /v0, as in http://host:port")
    return text.partition("#")[0].rstrip("/")


def headers(request: CallRequest, content: bytes | None) -> dict[str, str]:
    """The headers of a request, beyond those of every request."""
    if content is None:
        wanted = {} if request.range is None else {"range": request.range}
        return {"accept": request.accept, **wanted}
    return {"accept": request.accept, "content-type": "application/json"}


@contextmanager
def failures_named(address: Address, url: str, silent_s: float | None = None) -> Iterator[None]:
    """Turns what httpx raises into this client's errors, without its traceback.

    Args:
        url: The server that is called.
        silent_s: For a stream: after so many seconds without a byte it counts as broken.
    """
    try:
        yield
    except httpx.HTTPError as error:
        named = _named(error, address, url, silent_s)
        raise named from None


def _named(
    error: httpx.HTTPError, address: Address, url: str, silent_s: float | None
) -> LogqueueError:
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return Unreachable(
                f"cannot connect to {url}: no connection within {address.connect_timeout_s:g} s"
            )
        case httpx.ConnectError() | httpx.ProxyError():
            cause = _root(error)
            kind = TlsFailed if isinstance(cause, ssl.SSLError) else Unreachable
            return kind(f"cannot connect to {url}: {_why(cause)}")
        case httpx.TimeoutException() if silent_s is not None:
            return Silence(f"the stream from {url} was silent for {silent_s:g} s")
        case httpx.TimeoutException():
            return LostReply(
                f"no reply from {url} in time (timeout_s is {address.timeout_s:g}, plus "
                "what the call asks to wait)"
            )
        case httpx.LocalProtocolError():
            # Its text repeats headers, the API key among them.
            return UnexpectedReply("the request cannot be sent as HTTP: check its values")
        case _:
            return LostReply(
                f"the connection to {url} broke before the reply: {_why(_root(error))}"
            )


def _root(error: BaseException) -> BaseException:
    """The root cause of an error: httpx wraps the error of the system."""
    while True:
        inner = error.__cause__ or error.__context__
        if isinstance(error, BaseExceptionGroup):
            # One for each address of a host: the first says enough.
            inner = error.exceptions[0]
        if inner is None:
            return error
        error = inner


def _why(cause: BaseException) -> str:
    """A cause in words."""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"TLS certificate rejected: {cause.verify_message}"
        case ssl.SSLError():
            reason = (cause.reason or str(cause)).lower().replace("_", " ")
            return f"TLS handshake failed: {reason}; is it an http:// server?"
        case socket.gaierror():
            return f"cannot resolve the host name: {cause.strerror}"
        case OSError() if cause.errno is not None:
            return os.strerror(cause.errno).lower()
        case _:
            return str(cause) or type(cause).__name__


def require_success(
    address: Address, url: str, status: int, body: bytes, head: Mapping[str, str]
) -> None:
    """Raise what a reply says unless it says success, and comes from the writer.

    Args:
        url: The server that gave it.

    Raises:
        LogqueueError: The refusal; UnexpectedReply when it is not a reply of this API; NotWriter
            for the reply of a standby, where there are other servers to ask.
    """
    are_several = len(address.urls) > 1
    if are_several and BEHIND_HEADER in head:
        raise NotWriter.because(f"{url} follows another server", head.get(WRITER_HEADER, ""))
    if 200 <= status < 300:
        return
    error = refusal(status, body, head.get("retry-after"))
    if isinstance(error, Unauthorized):
        server = url if are_several else "the server"
        sent = (
            "no API key was sent"
            if address.token is None
            else f"{server} does not accept the API key that was sent"
        )
        hint = f"{sent}: give one with token=, --token or LOGQUEUE_TOKEN"
        raise Unauthorized(f"{error.message}; {hint}", error.detail)
    raise error


def require_stream(status: int, head: Mapping[str, str]) -> None:
    """Refuse a success that is not an event stream.

    Raises:
        UnexpectedReply: It is something else.
    """
    kind = head.get("content-type", "")
    if not kind.startswith("text/event-stream"):
        raise unexpected(status, f"content-type {kind}".encode())
