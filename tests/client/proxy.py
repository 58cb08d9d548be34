"""A TCP proxy that loses replies and cuts connections when told to.

Owns: sockets between a client and a server, and which of them to break. Must not know: HTTP beyond
the fact that a request's first line names its path, pytest.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

PART_BYTES = 65536


class Proxy:
    """Forwards connections to a server, with faults.

    Attributes:
        seen: First lines of the requests that went through, in order.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[str] = []
        self._lose: list[bytes] = []
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept, self._listener)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()
        self.cut()
        for thread in self._threads:
            thread.join()

    def lose_reply(self, path_end: str) -> None:
        """Let the next request to such a path through, and cut when its reply comes back."""
        with self._lock:
            self._lose.append(path_end.encode() + b" HTTP/1.1")

    def cut(self) -> None:
        """End every connection now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _end(end)

    def refuse(self) -> None:
        """Take no connections until `listen`."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def listen(self) -> None:
        """Take connections again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start(self._accept, self._listener)

    def lead_to(self, server: tuple[str, int]) -> None:
        """Forward new connections to another address."""
        self._server = server

    # -- threads ----------------------------------------------------------------------------

    def _start(self, run: object, *args: object) -> None:
        assert callable(run)
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                _end(client)
                continue
            doomed = threading.Event()
            with self._lock:
                self._pairs.append((client, server))
            self._start(self._forward, client, server, doomed)
            self._start(self._return, client, server, doomed)

    def _forward(self, client: socket.socket, server: socket.socket, doom: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while part := client.recv(PART_BYTES):
                if self._is_doomed(part):
                    doom.set()
                server.sendall(part)
        _end(server)

    def _is_doomed(self, part: bytes) -> bool:
        line, _, _ = part.partition(b"\r\n")
        with self._lock:
            if line.endswith(b" HTTP/1.1"):
                self.seen.append(line.decode().removesuffix(" HTTP/1.1"))
            if self._lose and line.endswith(self._lose[0]):
                self._lose.pop(0)
                return True
        return False

    def _return(self, client: socket.socket, server: socket.socket, doom: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while part := server.recv(PART_BYTES):
                if doom.is_set():
                    break
                client.sendall(part)
        _end(client)
        _end(server)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
