"""The real server as a process of its own, on a free port.

Owns: the child process and its start and end. Must not know: pytest, HTTP bodies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from logqueue.client import Client
from logqueue.errors import LogqueueError

START_S = 60.0
STOP_S = 60.0
POLL_S = 0.02


class ServerProcess:
    """A server on a data directory. Use it as a context manager, or `start` and `stop` it."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        """Nothing runs yet.

        Args:
            data_dir: Where it keeps its data; made if need be.
            settings: Server settings, as environment variables without their common prefix:
                `MAX_TOPICS="3"`.
        """
        self.url = ""
        self._data_dir = data_dir
        self._port_file = data_dir.with_name(f"{data_dir.name}.port")
        self._output = data_dir.with_name(f"{data_dir.name}.log")
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server and wait until it takes requests; again on the port of the last start.

        Raises:
            RuntimeError: It ended, or is not ready in time; the message has its output.
        """
        assert self._process is None, "the server runs already"
        self._port_file.unlink(missing_ok=True)
        kept = {name: value for name, value in os.environ.items() if name[:9] != "LOGQUEUE_"}
        given = {f"LOGQUEUE_{name}": value for name, value in self._settings.items()}
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "logqueue", "serve", "--port", port]
        command += ["--port-file", str(self._port_file), "--data-dir", str(self._data_dir)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**kept, **given},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        ends = time.monotonic() + START_S
        while not self._is_ready():
            status = self._process.poll()
            if status is not None or time.monotonic() > ends:
                self.kill()
                raise RuntimeError(f"the server did not start (status {status})\n{self.output()}")
            time.sleep(POLL_S)
        return self

    def _is_ready(self) -> bool:
        if not self._port_file.exists():
            return False
        self.url = f"http://{self._port_file.read_text().strip()}"
        with Client(self.url) as client:
            try:
                client.ready()
            except LogqueueError:
                return False
        return True

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def output(self) -> str:
        """The last lines that it has printed."""
        return self._output.read_text(errors="replace")[-4000:] if self._output.exists() else ""

    def stop(self) -> int:
        """Stop in order; returns the exit status, 0 also when it did not run."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def kill(self) -> None:
        """End it by SIGKILL; `start` begins again on the same data."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
