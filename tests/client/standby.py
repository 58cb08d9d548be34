"""A server that follows another one, as far as clients notice: it takes no changes.

Owns: a port, and the refusal of everything with the writer's URL. Must not know: what is tested.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class FakeStandby:
    """Answers `not_writer`.

    Attributes:
        asked: How many requests came.
    """

    def __init__(self, writer: str) -> None:
        """Listens at once.

        Args:
            writer: The URL that refusals name.
        """
        self.asked = 0
        said = {"code": "not_writer", "message": "this is a standby", "detail": {"writer": writer}}
        body = json.dumps({"error": said}).encode()
        standby = self

        class Refusing(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def refuse(self) -> None:
                standby.asked += 1
                with contextlib.suppress(ConnectionError):
                    self.rfile.read(int(self.headers.get("content-length", 0)))
                    self.send_response(503)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = refuse

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return ("127.0.0.1", self._server.server_port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
