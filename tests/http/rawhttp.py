"""HTTP/1.1 by hand: requests that no polite client sends, replies read with a deadline.

Owns: one socket, its unread bytes, chunked framing. Must not know: JSON, topics, SSE frames.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

Address = tuple[str, int]
READ_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RawReply:
    """One reply as it came over the wire; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Closed(Exception):
    """The other side closed the connection before what was asked for had come."""


class Connection:
    """One TCP connection. Every read ends by its timeout."""

    def __init__(self, address: Address, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection politely."""
        self._socket.close()

    def reset(self) -> None:
        """Drop the connection with a TCP reset, as a crashed client would."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._socket.close()

    def shut_writing(self) -> None:
        """Tell the server that no more request bytes will come, if it has not gone already."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, content: bytes) -> None:
        """Send bytes; a server that has already answered and closed is not an error here."""
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError):
            return

    def read_reply(self, *, method: str = "GET", timeout_s: float = READ_TIMEOUT_S) -> RawReply:
        """The next whole reply."""
        deadline = time.monotonic() + timeout_s
        status, headers = self.read_head(deadline)
        if method == "HEAD" or status in (101, 204, 304):
            return RawReply(status, headers, b"")
        return self.read_body(status, headers, deadline)

    def read_body(self, status: int, headers: dict[str, str], deadline: float) -> RawReply:
        """The rest of a reply whose head was read."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while part := self.read_chunk(deadline):
                parts.append(part)
            return RawReply(status, headers, b"".join(parts))
        if "content-length" in headers:
            return RawReply(status, headers, self._take(int(headers["content-length"]), deadline))
        return RawReply(status, headers, self._until_close(deadline))

    def read_head(self, deadline: float) -> tuple[int, dict[str, str]]:
        """Status and headers of the next reply, interim replies skipped."""
        while True:
            lines = self._take_until(b"\r\n\r\n", deadline).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            headers: dict[str, str] = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            if status != 100:
                return status, headers

    def read_chunk(self, deadline: float) -> bytes:
        """The next chunk of a chunked body; empty at its end. A timeout loses nothing."""
        while b"\r\n" not in self._unread:
            self._fill(deadline)
        line, _, rest = self._unread.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        while len(rest) < size + 2:
            self._fill(deadline)
            rest = self._unread[len(line) + 2 :]
        assert rest[size : size + 2] == b"\r\n", "chunk without its end"
        self._unread = rest[size + 2 :]
        return rest[:size]

    def read_some(self, deadline: float) -> bytes:
        """Whatever comes next, at least one byte; empty at the end of the stream."""
        if not self._unread:
            try:
                self._fill(deadline)
            except Closed:
                return b""
        taken, self._unread = self._unread, b""
        return taken

    def closed_by_server(self, timeout_s: float = READ_TIMEOUT_S) -> bool:
        """True when the server closes the connection before the timeout."""
        try:
            self._until_close(time.monotonic() + timeout_s)
        except TimeoutError:
            return False
        return True

    def _fill(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"no more bytes in time; unread: {self._unread[:200]!r}")
        self._socket.settimeout(remaining)
        try:
            received = self._socket.recv(65536)
        except ConnectionResetError:
            received = b""
        if not received:
            raise Closed(f"closed by the server; unread: {self._unread[:200]!r}")
        self._unread += received

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._unread) < size:
            self._fill(deadline)
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    def _take_until(self, mark: bytes, deadline: float) -> bytes:
        while mark not in self._unread:
            self._fill(deadline)
        taken, _, self._unread = self._unread.partition(mark)
        return taken

    def _until_close(self, deadline: float) -> bytes:
        while True:
            try:
                self._fill(deadline)
            except Closed:
                taken, self._unread = self._unread, b""
                return taken


def head(method: str, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """A request up to and including the blank line."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def request(
    method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole request; content-length only when there is a body."""
    sent = dict(headers or {})
    if body is not None:
        sent["content-length"] = str(len(body))
    return head(method, path, sent) + (body or b"")


def chunked(parts: Iterable[bytes]) -> bytes:
    """A body in chunked framing, with its last chunk."""
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return framed + b"0\r\n\r\n"


def exchange(
    address: Address, content: bytes, *, method: str = "GET", timeout_s: float = READ_TIMEOUT_S
) -> RawReply:
    """Send bytes on a new connection and read one reply."""
    with Connection(address, timeout_s) as connection:
        connection.send(content)
        return connection.read_reply(method=method, timeout_s=timeout_s)
