"""A worker of two processes, a writer that is killed, and a server that takes over its replica.

The standby is a stand-in: it refuses everything, until it is replaced by a server that restores the
replica into an empty directory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from logqueue.client import Client
from logqueue.testing import ServerProcess
from tests.client.proxy import Proxy
from tests.client.standby import FakeStandby
from tests.worker.programs import Programs
from tests.worker.test_acceptance_process import call, until_empty

JOBS = 8
"""As many as two processes run at once."""


class TwoServers:
    """A writer and what takes over from it, each behind an address of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._settings = {"REPLICA": (folder / "replica").as_uri(), "REPLICA_MODE": "sync"}
        self._writer = stack.enter_context(self._server("writer"))
        self._first = stack.enter_context(Proxy(address(self._writer)))
        self.standby = stack.enter_context(FakeStandby(self._first.url))
        self._second = stack.enter_context(Proxy(self.standby.address))
        self.urls = f"{self._first.url},{self._second.url}"

    def lose_the_writer(self) -> None:
        """SIGKILL."""
        self._writer.kill()
        self._first.refuse()
        self._first.cut()

    def take_over(self) -> None:
        """Have the second address lead to a writer of the same log."""
        successor = self._stack.enter_context(self._server("successor"))
        self._second.lead_to(address(successor))
        self._second.cut()

    def _server(self, name: str) -> ServerProcess:
        return ServerProcess(self._folder / name, **self._settings)


@contextmanager
def two_servers(folder: Path) -> Iterator[TwoServers]:
    """Both, until the end of the block."""
    with ExitStack() as stack:
        yield TwoServers(folder, stack)


def address(server: ServerProcess) -> tuple[str, int]:
    """Host and port."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_jobs_that_lost_their_server_end_at_the_other_one(tmp_path: Path) -> None:
    with (
        two_servers(tmp_path) as servers,
        Client(servers.urls, node="test") as client,
        Programs(servers.urls, tmp_path) as programs,
    ):
        # Only what is acknowledged with fsync waits for the replica.
        client.put_topic(programs.news_topic, durable=True)
        client.put_topic(programs.queue, type="queue", durable=True, leases_durable=True)
        client.append(programs.queue, [call("sleep", 2.0) for _ in range(JOBS)])
        programs.start(processes=2, concurrency=2, lease=60.0)
        for _ in range(JOBS):
            programs.next_news("started")
        servers.lose_the_writer()
        # A handler reports its end, and its report waits for a writer.
        while servers.standby.asked < JOBS:
            programs.check()
        servers.take_over()
        until_empty(client, programs)
        started = programs.all_news("started")
        assert sorted(news["seq"] for news in started) == [*range(1, JOBS + 1)], "none ran twice"
        assert {news["deliveries"] for news in started} == {1}
        assert len(programs.all_news("finished")) == JOBS


def test_the_command_line_follows_the_writer(tmp_path: Path) -> None:
    with two_servers(tmp_path) as servers:
        first, _, second = servers.urls.partition(",")

        def run(*words: str) -> str:
            command = [sys.executable, "-m", "logqueue", *words, "--url", f"{second},{first}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            return done.stdout

        run("create", "t", "--durability", "fsync")
        run("append", "t", "--data", '{"n": 1}')
        servers.lose_the_writer()
        servers.take_over()
        read = [json.loads(line) for line in run("read", "t", "--json").splitlines()]
        assert [record["data"] for record in read] == [{"n": 1}]
