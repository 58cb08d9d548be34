"""A writer that is killed in the middle of the work of others, and its standby that takes over.

All are real processes over a replica in a directory; both servers are behind proxies, so that the
test knows when connections end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from logqueue.client import Client
from logqueue.shapes import Records
from logqueue.testing import ServerProcess
from tests.worker.programs import Programs
from tests.worker.test_acceptance_process import call, until_empty

JOBS = 8
"""As many as two processes run at once."""


class TwoServers:
    """A writer and its standby, which takes over by itself.

    Attributes:
        writer: Its URL, as that of the standby.
        urls: Both, the standby first.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        shared = {"REPLICA": (folder / "replica").as_uri(), "REPLICA_MODE": "sync"}
        following = {"STANDBY": "1", "AUTO_PROMOTE": "3s", "STANDBY_POLL_MS": "50"}
        self._writer = stack.enter_context(ServerProcess(folder / "writer", **shared))
        standby = ServerProcess(folder / "standby", **shared, **following)
        self.writer = self._writer.url
        self.standby = stack.enter_context(standby).url
        self.urls = [self.standby, self.writer]

    def lose_the_writer(self) -> None:
        """SIGKILL."""
        self._writer.kill()


@contextmanager
def two_servers(folder: Path) -> Iterator[TwoServers]:
    """Both, until the end of the block."""
    with ExitStack() as stack:
        yield TwoServers(folder, stack)


def test_jobs_that_lost_their_server_end_at_the_other_one(tmp_path: Path) -> None:
    with (
        two_servers(tmp_path) as servers,
        Client(servers.urls, node="test") as client,
        Programs(",".join(servers.urls), tmp_path) as programs,
    ):
        # Only what is acknowledged with fsync waits for the replica.
        client.put_topic(programs.news_topic, durable=True)
        client.put_topic(programs.queue, type="queue", durable=True, leases_durable=True)
        client.append(programs.queue, [call("sleep", 2.0) for _ in range(JOBS)])
        programs.start(processes=2, concurrency=2, lease=60.0)
        for _ in range(JOBS):
            programs.next_news("started")
        servers.lose_the_writer()
        until_empty(client, programs)
        started = programs.all_news("started")
        assert sorted(news["seq"] for news in started) == [*range(1, JOBS + 1)], "none ran twice"
        assert {news["deliveries"] for news in started} == {1}
        assert len(programs.all_news("finished")) == JOBS


def test_producers_readers_and_commands_follow_the_writer(tmp_path: Path) -> None:
    with two_servers(tmp_path) as servers, Client(servers.urls) as client:
        client.put_topic("t", durable=True)
        client.append("t", [0])
        # What the standby has by now is old for a client of both.
        assert client.replica().role == "writer"
        seen: list[object] = []

        def watch() -> None:
            with Client(servers.urls) as reader, closing(reader.watch("t")) as frames:
                for frame in frames:
                    if isinstance(frame, Records):
                        seen.extend(record.data for record in frame.records)
                    if 40 in seen:
                        return

        watching = threading.Thread(target=watch)
        watching.start()
        for number in range(1, 40):
            if number == 20:
                servers.lose_the_writer()
            client.append("t", [number])
        assert client.topic("t").head_seq == 40
        run = [sys.executable, "-m", "logqueue", "append", "t", "--data", "40"]
        urls = f"{servers.writer},{servers.standby}"
        subprocess.run([*run, "--url", urls], check=True, timeout=60, capture_output=True)
        watching.join(60.0)
        assert seen == [*range(41)], "each once, in order"
        assert [record.data for record in client.read("t")] == [*range(41)]  # type: ignore[union-attr]


def test_a_hand_over_that_was_asked_for_is_followed(tmp_path: Path) -> None:
    with two_servers(tmp_path) as servers, Client(servers.urls) as client:
        client.put_topic("t", durable=True)
        client.append("t", [1])
        command = [sys.executable, "-m", "logqueue", "promote", "--url"]
        both = ",".join(servers.urls)
        refused = subprocess.run([*command, both], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2 and "name the standby alone" in refused.stderr
        subprocess.run([*command, servers.standby], check=True, timeout=60, capture_output=True)
        client.append("t", [2])
        read = subprocess.run(
            [sys.executable, "-m", "logqueue", "read", "t", "--json", "--url", both],
            check=True,
            timeout=60,
            capture_output=True,
            text=True,
        )
        assert [json.loads(line)["data"] for line in read.stdout.splitlines()] == [1, 2]
