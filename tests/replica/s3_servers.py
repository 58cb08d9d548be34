"""S3 servers for tests: one in this process, one that says what a test asks for."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REGION = "us-east-1"
BUCKET = "replicas"
GATEWAY = "LOGQUEUE_TEST_S3_GATEWAY"
"""Names the program of a real S3 server, as `make test-s3` builds it."""


class S3Server(NamedTuple):
    """Where a server is, and who may ask it."""

    endpoint: str
    access_key: str = "tests"
    secret_key: str = "tests-secret"

    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "NO_PROXY": "127.0.0.1",
        }

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Stores that are opened meanwhile find it."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in self.environment().items():
                patch.setenv(name, value)
            yield

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        import boto3

        boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        ).create_bucket(Bucket=name)


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """The wire of S3, and its conditions on writes, in a thread of this process."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        # A condition is looked at, and then the object is written: no other call may come between.
        with lock:
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    s3 = S3Server(f"http://{host!s}:{port}")
    try:
        s3.make_bucket(BUCKET)
        yield s3
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Gateway:
    """A real S3 server as a process, on one directory and one port from start to start.

    Attributes:
        s3: Where it is.
    """

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._objects.mkdir()
        self._log = directory / "log"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        self.s3 = S3Server(f"http://127.0.0.1:{self._port}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        where = f"127.0.0.1:{self._port}"
        command = [os.environ[GATEWAY], "--keep-alive", "--quiet", "--port", where]
        command += ["--access", self.s3.access_key, "--secret", self.s3.secret_key]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "posix", str(self._objects)], stdout=log, stderr=log
            )
        for _ in range(600):
            assert self._process.poll() is None, self._log.read_text()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            time.sleep(0.05)
        raise AssertionError("the S3 server does not start")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def gateway_server(directory: Path) -> Iterator[Gateway]:
    """The S3 server that the environment names, with its bucket."""
    gateway = Gateway(directory)
    gateway.start()
    try:
        gateway.s3.make_bucket(BUCKET)
        yield gateway
    finally:
        gateway.kill()


class ScriptedServer:
    """Answers every request with the next of some replies.

    Attributes:
        requests: The first lines of what was asked.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        # None for no reply: the connection ends.
        self._replies: list[bytes | None] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def s3(self) -> S3Server:
        """Where it is."""
        return S3Server(f"http://127.0.0.1:{self._listener.getsockname()[1]}")

    def says(self, status: int, code: str = "", headers: str = "", body: str = "") -> None:
        """The next reply; with the code of an error."""
        if code:
            body = f"<Error><Code>{code}</Code><Message>because</Message></Error>"
        head = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        self._replies.append(f"{head}{body}".encode())

    def hangs_up(self) -> None:
        """The next request gets no reply, and its connection ends."""
        self._replies.append(None)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Answer requests of one connection, one after the other."""
        with connection, suppress(OSError), connection.makefile("rb") as requests:
            while line := requests.readline():
                length = 0
                while (header := requests.readline()).strip():
                    name, _, value = header.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                requests.read(length)
                self.requests.append(line.decode().strip())
                reply = self._replies.pop(0) if self._replies else None
                if reply is None:
                    return
                connection.sendall(reply)
