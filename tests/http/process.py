"""Starts, kills and restarts a real server process on a real port.

Owns: the child process, its port file, its data directory and its log file. Must not know: pytest,
HTTP bodies, what a topic is. Crash tests use it as it stands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from tests.http.forked import Forked, started

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02


class StartFailed(Exception):
    """The server ended, or did not become ready in time; the message holds its last output."""


class ServerProcess:
    """One server on one data directory: start, kill, terminate, restart.

    Settings are environment variables without their common prefix: {"MAX_TOPICS": "3"}.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        probe_key: str | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.flags = list(flags)
        self.probe_key = probe_key
        self.host = ""
        self.port = 0
        self._port_file = data_dir.with_name(data_dir.name + ".port")
        self._log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: Forked | subprocess.Popen[bytes] | None = None

    # -- life -------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the process without waiting for anything."""
        assert self._process is None, "already running"
        self._port_file.unlink(missing_ok=True)
        self._process = started(self._arguments(), environment(self.settings), str(self._log_path))

    def start(self) -> ServerProcess:
        """Start the process and wait until it says that it is ready."""
        self.spawn()
        self.wait_bound()
        self.wait_ready()
        return self

    def wait_bound(self) -> None:
        """Wait until the port is bound, ready or not."""
        self._await_port(time.monotonic() + START_TIMEOUT_S)

    def wait_ready(self) -> None:
        """Wait until the server says that it is ready."""
        self._await_ready(time.monotonic() + START_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL: no chance to flush anything."""
        self._end(signal.SIGKILL)

    def terminate(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Ask the server to drain and stop; returns its exit status."""
        return self._end(with_signal)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        assert self._process is not None, "not running"
        self._process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the end of the process; returns its exit status."""
        assert self._process is not None, "not running"
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._process = None
            raise AssertionError(f"server did not stop in {timeout_s} s\n{self.log()}") from None
        self._process = None
        return status

    def restart(self) -> ServerProcess:
        """Start again on the same data directory (a running server is killed first)."""
        if self._process is not None:
            self.kill()
        return self.start()

    def stop(self) -> None:
        """End the process if it runs, whatever its state. For tear-down."""
        if self._process is not None:
            self.kill()

    # -- facts ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def base_url(self) -> str:
        """Where clients connect."""
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for raw sockets."""
        return self.host, self.port

    def log(self) -> str:
        """The last lines that all runs on this directory printed."""
        if not self._log_path.exists():
            return "<no output>"
        return self._log_path.read_text(errors="replace")[-4000:]

    @property
    def log_bytes(self) -> int:
        """How much all runs on this directory printed."""
        return self._log_path.stat().st_size if self._log_path.exists() else 0

    # -- inside -----------------------------------------------------------------------------

    def _arguments(self) -> list[str]:
        return [
            "serve",
            "--port",
            "0",
            "--port-file",
            str(self._port_file),
            "--data-dir",
            str(self.data_dir),
            *self.flags,
        ]

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "not running"
        self._process.send_signal(number)
        return self.wait()

    def _await_port(self, deadline: float) -> None:
        while True:
            if self._port_file.exists():
                host, _, port = self._port_file.read_text().strip().rpartition(":")
                self.host, self.port = host or "127.0.0.1", int(port)
                if self.host == "0.0.0.0":
                    self.host = "127.0.0.1"
                return
            self._check_alive(deadline, "no port file")

    def _await_ready(self, deadline: float) -> None:
        headers = {"authorization": f"Bearer {self.probe_key}"} if self.probe_key else {}
        while True:
            try:
                reply = httpx.get(
                    self.base_url + "/v0/ready",
                    headers=headers,
                    timeout=10.0,
                    trust_env=False,
                    verify=False,  # loading certificates takes longer than a start
                )
                if reply.status_code == 200:
                    return
            except httpx.TransportError:
                pass
            self._check_alive(deadline, "not ready")

    def _check_alive(self, deadline: float, what: str) -> None:
        assert self._process is not None, "not running"
        status = self._process.poll()
        if status is not None:
            self._process = None
            raise StartFailed(f"server ended with status {status} ({what})\n{self.log()}")
        if time.monotonic() > deadline:
            self.kill()
            raise StartFailed(f"{what} after {START_TIMEOUT_S} s\n{self.log()}")
        time.sleep(POLL_S)


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The test's own environment, with exactly these server settings and no others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOGQUEUE_")}
    kept.update({f"LOGQUEUE_{name}": value for name, value in settings.items()})
    return kept


def run_to_end(
    flags: Sequence[str], settings: Mapping[str, str], timeout_s: float = START_TIMEOUT_S
) -> tuple[int, str]:
    """Start a server that is expected to refuse; returns its exit status and its output."""
    with tempfile.NamedTemporaryFile() as output:
        process = Forked(["serve", *flags], environment(settings), output.name)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return status, output.read().decode(errors="replace")
