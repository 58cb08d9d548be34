"""A server as a child process: start it, wait until it is ready, kill it, stop it.

Owns: the child's process, its port file and its captured output. Must not know: what the server is
used for, or anything that its command line and its API do not tell.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from logqueue import Client, LogqueueError

SERVE_COMMAND = (sys.executable, "-m", "logqueue", "serve")
POLL_S = 0.005
LOG_TAIL_LINES = 20


class ServerFailed(Exception):
    """The child ended, or did not become ready in time. The message holds the end of its output."""


class DemoServer:
    """One `logqueue serve` at a time on one data directory, on the same port after a restart."""

    def __init__(
        self,
        data_dir: Path,
        side_dir: Path,
        code_dir: Path | None = None,
        *,
        options: Sequence[str] = (),
        is_ready: Callable[[Client], object] = Client.ready,
        url: str = "",
    ) -> None:
        """The server stores in data_dir; its output and port file go to side_dir.

        Args:
            data_dir: Belongs to the server alone.
            side_dir: Any other folder.
            code_dir: A checkout whose code is run; absent means the code of the caller. The other
                two paths must then be absolute.
            options: More of its command line.
            is_ready: Raises a LogqueueError until the server is.
            url: Where an earlier server was, to use its port.
        """
        assert data_dir != side_dir, "the data directory belongs to the server alone"
        self.data_dir = data_dir
        self.log_path = side_dir / f"{data_dir.name}.log"
        self.port_path = side_dir / f"{data_dir.name}.port"
        self._code_dir = code_dir
        self._options = tuple(options)
        self._is_ready = is_ready
        self.url = url
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port, as in 127.0.0.1:4000."""
        return self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self, timeout_s: float = 60.0) -> float:
        """Start the child and return the seconds until it was ready."""
        assert self._process is None, "the server is running already"
        self.port_path.unlink(missing_ok=True)
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._code_dir,
                env=_plain_environment(self._code_dir),
            )
        try:
            self._wait_for_port(began + timeout_s)
            self._wait_for_ready(began + timeout_s)
        except ServerFailed:
            self.kill()
            raise
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: the server gets no chance to finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, wait for the drain, return the exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"no exit {timeout_s:.0f} s after SIGTERM{self._tail()}") from None
        finally:
            self.kill()

    def _command(self) -> list[str]:
        port = self.url.rpartition(":")[2] or "0"
        return [
            *SERVE_COMMAND,
            "--port",
            port,
            "--port-file",
            str(self.port_path),
            "--data-dir",
            str(self.data_dir),
            *self._options,
        ]

    def _wait_for_port(self, deadline: float) -> None:
        while True:
            self._check_alive(deadline, "no port file")
            try:
                address = self.port_path.read_text(encoding="ascii").strip()
            except FileNotFoundError:
                address = ""
            if address:
                self.url = f"http://{address}"
                return
            time.sleep(POLL_S)

    def _wait_for_ready(self, deadline: float) -> None:
        while (unready := self._ask_ready()) != "":
            self._check_alive(deadline, unready)
            time.sleep(POLL_S)

    def _ask_ready(self) -> str:
        """Empty when the server is ready, else what it said instead."""
        with Client(self.url, timeout_s=5.0) as client:
            try:
                self._is_ready(client)
            except LogqueueError as error:
                return str(error) or error.code
        return ""

    def _check_alive(self, deadline: float, what: str) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            self._process = None
            raise ServerFailed(f"the server ended with status {status}{self._tail()}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"the server did not come up in time: {what}{self._tail()}")

    def _tail(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "".join(f"\n  {line}" for line in lines[-LOG_TAIL_LINES:])


def _plain_environment(code_dir: Path | None) -> dict[str, str]:
    """The caller's environment without server settings: keys or limits for another server."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("LOGQUEUE_")}
    if code_dir is not None:
        plain["PYTHONPATH"] = str(code_dir)
    return plain
