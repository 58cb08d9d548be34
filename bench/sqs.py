"""What boto3 gets done here, and with a stand-in for SQS on the same machine: moto's server.

Owns: the row sqs-loop and its rows beside it. One client sends, receives and deletes one message
at a time, here and there in turns, so that both see the same mood of the machine. Most of the time
of a loop is the client's own.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load import LoadFailed
from bench.machine import cpu_s
from bench.rows import Row, Target
from bench.session import Session

BLOCK_LOOPS = 50
REQUESTS_PER_LOOP = 3
START_S_MAX = 60.0
BODY = "x" * 100


def sqs_loop(session: Session) -> list[Row]:
    """Loops of send, receive and delete by one client of boto3, here and on moto in turns."""
    ratio = Row("sqs-loop-ratio", "boto3 send, receive, delete: rate here over rate on moto",
                "times", Target(1.0, at_most=False))  # fmt: skip
    ours = Row("sqs-loop", "boto3 send, receive, delete of one message", "loops/s")
    theirs = Row("sqs-loop-moto", "the same on moto's server", "loops/s")
    busy = Row("sqs-loop-cpu", "processor time of the server per request of boto3", "us")
    for _ in range(session.scale.repeats):
        with session.server(["--sqs"]) as server, _moto(session.place()) as moto:
            clients = [_client(f"{server.url}/sqs"), _client(moto)]
            before = cpu_s(server.pid)
            loops, took = _in_turns(clients, session.scale.seconds)
            busy.values.append((cpu_s(server.pid) - before) * 1e6 / loops / REQUESTS_PER_LOOP)
        ours.values.append(loops / took[0])
        theirs.values.append(loops / took[1])
        ratio.values.append(took[1] / took[0])
    return [ratio, ours, theirs, busy]


def _in_turns(clients: list[Any], seconds: float) -> tuple[int, list[float]]:
    queues = [client.create_queue(QueueName="bench")["QueueUrl"] for client in clients]
    took = [0.0, 0.0]
    loops = 0
    while sum(took) < seconds:
        for place, client in enumerate(clients):
            began = time.perf_counter()
            _loops(client, queues[place])
            took[place] += time.perf_counter() - began
        loops += BLOCK_LOOPS
    return loops, took


def _loops(client: Any, queue: str) -> None:
    for _ in range(BLOCK_LOOPS):
        client.send_message(QueueUrl=queue, MessageBody=BODY)
        (message,) = client.receive_message(QueueUrl=queue, WaitTimeSeconds=1)["Messages"]
        client.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def _client(endpoint: str) -> Any:
    import boto3

    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


@contextmanager
def _moto(place: Path) -> Iterator[str]:
    """Moto's server as a process; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (place / "output.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _await(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > ends:
                raise LoadFailed("moto's server did not start: install moto[server]") from None
            time.sleep(0.05)
