"""Clients that were used before a fork, as servers do that load the program first."""

from __future__ import annotations

import subprocess
import sys

from logqueue.client import Client
from logqueue.shapes import Record
from tests.house import ROOT
from tests.http.process import ServerProcess

PROGRAM = """
import asyncio, os, sys, threading
from logqueue import AsyncClient, Client
from logqueue.worker import App

url, topic = sys.argv[1:]
client = Client(url)
app = App(url)

@app.task(queue=topic + ".jobs")
def task(n: int) -> None: ...

awaiting = AsyncClient(url)

async def write(mark):
    for n in range(20):
        stored = await awaiting.append(topic, [[mark, "async", n]])
        assert stored.topic == topic
    if mark != "first":
        await awaiting.close()

def use(mark):
    for n in range(20):
        other = f"{topic}.{mark}"
        assert client.append(topic, [[mark, "blocking", n]]).topic == topic
        assert client.topic(other if n % 2 else topic).topic == (other if n % 2 else topic)
        assert task.send(n) > 0

def threads(mark):
    running = [threading.Thread(target=use, args=(mark,)) for _ in range(2)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

for mark in ("first", "a", "b", "c"):
    client.put_topic(f"{topic}.{mark}")
with asyncio.Runner() as runner:
    runner.run(write("first"))
use("first")
children = []
for mark in ("a", "b", "c"):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            threads(mark)
            asyncio.Runner().run(write(mark))
            status = 0
        finally:
            os._exit(status)
    children.append(pid)
threads("first")
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_clients_and_apps_work_on_both_sides_of_a_fork(server: ServerProcess, topic: str) -> None:
    with Client(server.base_url) as client:
        client.put_topic(topic)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, server.base_url, topic],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        found = [tuple(r.data) for r in client.read(topic) if isinstance(r, Record)]
        # One parent before the fork, then two threads in each of four processes; 20 each time.
        assert len([data for data in found if data[1] == "blocking"]) == 20 + 4 * 2 * 20
        assert sorted(data for data in found if data[1] == "async") == sorted(
            (mark, "async", n) for mark in ("first", "a", "b", "c") for n in range(20)
        )
        assert client.topic(f"{topic}.jobs").count == 20 + 4 * 2 * 20
