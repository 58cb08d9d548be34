"""Which of several servers a call is sent to: the writer, found by asking.

Owns: the servers of a client, the one its calls begin with, the order in which a call tries them,
and the error that says what each one answered. Must not know: httpx, routes, how long to wait.

The servers of one log are one writer and standbys. A call begins with the server that answered the
last ones. Where that one is away, or says that it is not the writer, the call continues at once
with the server named as the writer, else with the next one, until each was asked: that is a round.
Only between rounds there is a wait. With one server a round is one try.

Only servers that the user has named are called: a writer that is not among them is not followed, so
that no API key reaches a host the user did not choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from logqueue.client.calls import CallRequest
from logqueue.client.failures import ConnectionFailed, GatewayFailed
from logqueue.errors import (
    LogqueueError,
    NotReady,
    NotWriter,
    ReplicaUnavailable,
    ShuttingDown,
)

ELSEWHERE = (
    ConnectionFailed,
    GatewayFailed,
    NotReady,
    NotWriter,
    ReplicaUnavailable,
    ShuttingDown,
)
"""Failures after which another server may be the writer, or become it."""


class Servers:
    """The servers of one client, and where its calls begin. Threads may share it."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Calls begin with the first.

        Args:
            urls: Of servers; one that is given twice counts once.

        Raises:
            ValueError: There is none.
        """
        if not urls:
            raise ValueError("no server URL given: use http://host:port")
        self.urls = tuple({_place(url): url for url in reversed(urls)}.values())[::-1]
        self.first = 0
        self._at = {_place(url): at for at, url in enumerate(self.urls)}

    @property
    def are_several(self) -> bool:
        """Whether there is a writer to look for."""
        return len(self.urls) > 1

    def find(self, url: str) -> int | None:
        """Which server a URL is of, however it is written; None for one that is not among them."""
        return self._at.get(_place(url))

    def require_one_for(self, request: CallRequest) -> None:
        """Refuse to choose the server of a request that must name it.

        Raises:
            ValueError: There are several.
        """
        if request.names_server and self.are_several:
            raise ValueError(
                f"{request.method} {request.path} is about one server: use a client with its URL "
                f"alone, not with {', '.join(self.urls)}"
            )

    def search(self) -> Search:
        """The tries of one call, or of one iteration over streams."""
        return Search(self)


class Search:
    """Where one call is sent: rounds over the servers.

    Attributes:
        url: The server to try next.
        goes_on: Whether it is to be tried at once, for it was not asked in this round.
    """

    __slots__ = ("_at", "_is_over", "_said", "_servers", "goes_on", "url")

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._at = servers.first
        self._said: dict[int, LogqueueError] = {}
        self._is_over = False
        self.url = servers.urls[self._at]
        self.goes_on = False

    def failed(self, error: LogqueueError) -> LogqueueError:
        """Take in that the try at `url` failed.

        Returns:
            What that comes to: the error itself, or what each server of this round has said.
        """
        self.goes_on = False
        if not self._servers.are_several:
            return error
        if self._is_over:
            self._said.clear()
            self._is_over = False
        if not (error.retryable and isinstance(error, ELSEWHERE)):
            # The writer has answered, or no server would answer otherwise.
            self._is_over = True
            return error
        self._said[self._at] = error
        summary = self._summary(error)
        following = self._next(error)
        self.goes_on = following is not None
        if following is None:
            self._is_over = True
            following = self._answered_last()
        self._move(following)
        return summary

    def broke(self, error: LogqueueError) -> LogqueueError:
        """Take in that a stream from `url` was open and ended: after a wait, the next one is asked
        for elsewhere. A server that ends each stream at once must not be asked without pause."""
        self._is_over = True
        self.failed(error)
        self._is_over = True
        self.goes_on = False
        return error

    def _move(self, to: int) -> None:
        servers = self._servers
        # A call beside this one may have found the writer by now.
        if servers.first == self._at:
            servers.first = to
        self._at = to
        self.url = servers.urls[to]

    def _next(self, error: LogqueueError) -> int | None:
        """The server to ask next in this round: the one that is named, else in order."""
        named = self._servers.find(writer_of(error))
        if named is not None and named not in self._said:
            return named
        order = (*range(self._at + 1, len(self._servers.urls)), *range(self._at))
        return next((at for at in order if at not in self._said), None)

    def _answered_last(self) -> int:
        """Where the next round begins: a server that is up knows sooner than one that is away."""
        answered = [at for at, error in self._said.items() if error.status > 0]
        return answered[-1] if answered else (self._at + 1) % len(self._servers.urls)

    def _summary(self, last: LogqueueError) -> LogqueueError:
        """One error for all that the servers of this round said."""
        if len(self._said) == 1 and not self._is_outside(last):
            return last
        answers = {self._servers.urls[at]: error for at, error in self._said.items()}
        leading = max(answers.values(), key=_weight)
        parts = [_attributed(url, error) for url, error in answers.items()]
        outside = [writer_of(e) for e in answers.values() if self._is_outside(e)]
        if outside:
            parts.append(f"the writer is said to be {outside[-1]}: add it to the URLs")
        begin = "no writer found" if leading.status > 0 else "no server answers"
        summary = type(leading)(f"{begin}: {'; '.join(parts)}", leading.detail)
        # How soon a standby may be asked again says nothing about the writer.
        waits = [e.retry_after_s for e in answers.values() if not isinstance(e, NotWriter)]
        summary.retry_after_s = max((wait for wait in waits if wait is not None), default=None)
        return summary

    def _is_outside(self, error: LogqueueError) -> bool:
        named = writer_of(error)
        return named != "" and self._servers.find(named) is None


def writer_of(error: LogqueueError) -> str:
    """The URL of the writer, where a refusal names it; else ""."""
    named = (error.detail or {}).get("writer") if isinstance(error, NotWriter) else None
    return named if isinstance(named, str) else ""


def _place(url: str) -> tuple[str, str, int | None, str]:
    """What two ways of writing a URL have in common."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ("", url, None, "")
    return (parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"))


_PORTS = {"http": 80, "https": 443}


def _attributed(url: str, error: LogqueueError) -> str:
    """What a server said, with its URL unless the text names it."""
    return error.message if url in error.message else f"{url} said: {error.message}"


def _weight(error: LogqueueError) -> tuple[bool, bool]:
    """Of several errors the one whose class a caller should see: one with an unknown effect, else
    one that a server has said."""
    return (not error.had_no_effect, error.status > 0)
