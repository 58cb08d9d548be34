"""What a server needs to take part: a process with durable settings, and scripts of requests.

Owns: the outline of a peer, its process, its processor time. Must not know: any protocol, any work.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bench.load import Connection, LoadFailed, Script, connect
from bench.loops import Tally
from bench.machine import cpu_s
from bench.peers.following import Follower

START_S_MAX = 60.0
POLL_S = 0.02
TAIL_BYTES = 600


class Peer(ABC):
    """One kind of server.

    Attributes:
        name: As people know it.
        install: A command that installs it.
        settings: What makes it as durable as it can be, in its own words.
        client: How its requests are made and its replies read.
        batch: What 100 jobs in one go are to it.
        lacks: Why it does not deliver to watchers; empty where it does.
    """

    name: str
    install: str
    settings: str
    client: str
    batch: str
    lacks: str = ""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.address = ""
        self._log = place / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """What is installed; empty where it is not."""

    @abstractmethod
    def command(self, port: int) -> Sequence[str | Path]:
        """The command line that serves on this port, with its data below `place`."""

    @abstractmethod
    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """Make an empty queue, or a log that watchers can follow."""

    @abstractmethod
    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One connection appending these payloads in one go, until the tally stops."""

    @abstractmethod
    def cycle(
        self,
        connection: Connection,
        queue: str,
        payloads: Sequence[bytes],
        tally: Tally,
        seen: set[bytes],
    ) -> Script:
        """One connection appending, claiming and finishing jobs, until the tally stops."""

    async def follow(self, queue: str, followers: Sequence[Follower]) -> None:
        """Connect these followers of a log, from its start."""
        raise LoadFailed(f"{self.name}: {self.lacks}")

    async def connect(self, count: int) -> list[Connection]:
        """That many connections, ready for requests."""
        return await connect(self.address, count)

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        Raises:
            LoadFailed: It ended, or accepts none in time.
        """
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in self.command(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place,
                user=self.user(),
            )
        until = time.monotonic() + START_S_MAX
        while not self.accepts(port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                tail = self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
                raise LoadFailed(f"{self.name} did not start: {tail.strip()}")
            time.sleep(POLL_S)

    def user(self) -> str | None:
        """Who runs the server, where that is not the caller."""
        return None

    def accepts(self, port: int) -> bool:
        """Whether the server can be asked now."""
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    def cpu_s(self) -> float:
        """Processor seconds of the server so far, with all of its processes."""
        assert self._process is not None
        return sum(cpu_s(pid) for pid in family(self._process.pid))

    def kill(self) -> None:
        """End the server; its data goes with the folder of the run."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


async def join(address: str, followers: Sequence[Follower]) -> None:
    """Connect followers, which then speak for themselves."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    waiting = iter(followers)
    for _ in followers:
        await loop.create_connection(lambda: next(waiting), host, int(port))


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            children.setdefault(int(fields.rpartition(")")[2].split()[1]), []).append(
                int(entry.name)
            )
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def installed_version(program: str | None, *arguments: str) -> str:
    """The last word with a digit that a program says of its version; empty where it is missing."""
    if program is None or shutil.which(program) is None:
        return ""
    said = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    words = (said.stdout or said.stderr).replace("v=", " ").split()
    return next((word.strip("v(),") for word in words if word.strip("v")[:1].isdigit()), "?")


def is_root() -> bool:
    """Whether this process may do everything."""
    return os.geteuid() == 0
