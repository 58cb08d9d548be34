"""A proxy that loses replies when told to: the server has acted, the caller never learns of it.

Owns: the sockets in between, and spotting which call a request makes. Must not know: the tests.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PART_BYTES = 65536


class LossyProxy:
    """Passes bytes on in both directions.

    Attributes:
        url: Where to connect instead.
        lost: Verbs whose replies were lost, in order.
    """

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None and address.port is not None
        self._server = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost: list[str] = []
        self._ordered: list[str] = []
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            _close(one)
        for thread in self._threads:
            thread.join(5.0)

    def lose_reply(self, verb: str) -> None:
        """Lose the next reply to a call of this verb."""
        self._ordered.append(verb)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open |= {client, server}
            asked: list[str] = []
            for way in ((client, server, asked, True), (server, client, asked, False)):
                thread = threading.Thread(target=self._pass_on, args=way, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, asked: list[str], is_up: bool
    ) -> None:
        """One direction of one connection; `asked` holds the verb of its latest request."""
        with suppress(OSError):
            while part := source.recv(PART_BYTES):
                if is_up:
                    asked[:] = [_verb(part)] if _verb(part) else asked
                elif asked and asked[0] in self._ordered:
                    self._ordered.remove(asked[0])
                    self.lost.append(asked[0])
                    break
                sink.sendall(part)
        for one in (source, sink):
            self._open.discard(one)
            _close(one)


def _verb(part: bytes) -> str:
    """The verb of the request that begins here; "" for the rest of a body."""
    method, _, rest = part.partition(b" ")
    if method not in (b"POST", b"GET"):
        return ""
    segments = rest.partition(b" ")[0].partition(b"?")[0].decode().strip("/").split("/")
    if len(segments) > 3:
        return segments[3]
    return "append" if method == b"POST" else "get"


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
