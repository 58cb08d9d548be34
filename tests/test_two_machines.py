"""docs/two-machines.md keeps its promises: its first section runs as it is written there."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from logqueue.client import Client
from logqueue.errors import LogqueueError
from tests import readme
from tests.house import ROOT, page

LOGQUEUE = f"{sys.executable} -m logqueue"


def section(heading: str) -> str:
    """The text below a heading of the page."""
    text = page("docs/two-machines.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"the page has no section {heading!r}"
    return text


def environment(**variables: str) -> dict[str, str]:
    """Without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOGQUEUE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "NO_PROXY": "*", **variables}


def free_ports(count: int) -> list[str]:
    """Ports that nothing has, at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [str(found.getsockname()[1]) for found in sockets]
    finally:
        for found in sockets:
            found.close()


@contextmanager
def served(commands: list[str], directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The servers of the page."""
    servers = []
    for number, command in enumerate(commands):
        with (directory / f"server-{number}.log").open("wb") as log:
            servers.append(
                subprocess.Popen(
                    ["sh", "-c", f"exec {command}"],
                    cwd=directory,
                    env=environment(),
                    stderr=log,
                )
            )
    try:
        yield servers
    finally:
        for server in servers:
            server.kill()
            server.wait()


def writer_of(clients: list[Client], *, other_than: int | None = None) -> int:
    """Which of the servers writes, once one does."""
    for _ in range(600):
        for number, client in enumerate(clients):
            try:
                if number != other_than and client.replica().role == "writer":
                    return number
            except LogqueueError:
                continue
        time.sleep(0.1)
    raise AssertionError("no server writes")


def test_a_newcomer_sees_a_takeover(tmp_path: Path) -> None:
    ports = dict(zip(("4000", "4001"), free_ports(2), strict=True))
    text = re.sub(r"\b400[01]\b", lambda match: ports[match[0]], section("Try it"))
    text = text.replace("logqueue ", f"{LOGQUEUE} ")
    blocks = [block.commands() for block in readme.shell_blocks(text)]
    serving, using, after = [*blocks[0], *blocks[1]], blocks[2], blocks[3]
    urls = [f"http://127.0.0.1:{port}" for port in ports.values()]
    with ExitStack() as open_ones:
        servers = open_ones.enter_context(served(serving, tmp_path))
        clients = [open_ones.enter_context(Client(url)) for url in urls]
        first = writer_of(clients)
        assert using[0] == f"export LOGQUEUE_URL={','.join(urls)}"

        def run(command: str) -> str:
            ran = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment(LOGQUEUE_URL=",".join(urls)),
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, f"{command}\n{ran.stderr}"
            return ran.stdout

        shown = [run(command) for command in using[1:]]
        assert urls[first] in shown[-1], "the status of the replica names the writer"
        servers[first].send_signal(signal.SIGKILL)
        assert writer_of(clients, other_than=first) == 1 - first
        assert "ada" in run(after[0])
