"""What a lone writer waits while others read the whole log, as fast as it comes.

Owns: the row read-append and its rows beside it. The readers are processes of their own that take
the bytes of all segments and do nothing with them: what is measured is the server, not how much of
the machine the readers leave it.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event

import uvloop

from bench.load import (
    LoneConnection,
    append_request,
    expect_count,
    fill,
    job,
    queue_request,
    request,
)
from bench.machine import Spread
from bench.rows import Row, Target
from bench.session import Session
from logqueue.client import Client

READ, WRITTEN = "bench.read", "bench.beside"
READERS = 2
"""As many as the tasks that a machine with two cores runs at once."""
BLOCK_WRITES = 100
PER_REQUEST, CONNECTIONS = 100, 4
BUFFER_BYTES = 1 << 20


def read_append(session: Session) -> list[Row]:
    """Append alone and beside readers, in turns, so that both see the same mood of the machine."""
    ratios = [
        Row("read-append-ratio", "append p99 beside 2 readers of all segments, over p99 alone",
            "times", Target(2.0, at_most=True)),
        Row("read-append-ratio-p50", "the same of p50", "times"),
    ]  # fmt: skip
    alone = Row("read-append-alone-p99", "append, 1 per request, p99, no readers", "ms")
    beside = Row("read-append-beside-p99", "append, 1 per request, p99, beside 2 readers", "ms")
    for _ in range(session.scale.repeats):
        with session.server() as server:
            _fill(server.address, session.scale.read_records)
            one, other = _in_turns(server.address, session.scale.lone_writes)
        alone.values.append(one.p99_ms)
        beside.values.append(other.p99_ms)
        ratios[0].values.append(other.p99_ms / one.p99_ms)
        ratios[1].values.append(other.p50_ms / one.p50_ms)
        session.tell(
            f"  read-append: p50 {one.p50_ms:.3f} ms alone, {other.p50_ms:.3f} ms beside readers; "
            f"p99 {one.p99_ms:.3f} and {other.p99_ms:.3f} ms"
        )
    return [*ratios, alone, beside]


def _fill(address: str, records: int) -> None:
    connection = LoneConnection(address)
    connection.call(queue_request(READ))
    connection.close()
    uvloop.run(fill(address, READ, records, PER_REQUEST, CONNECTIONS))


def _in_turns(address: str, writes: int) -> tuple[Spread, Spread]:
    alone: list[float] = []
    beside: list[float] = []
    connection = LoneConnection(address)
    try:
        connection.call(queue_request(WRITTEN))
        while len(alone) < writes:
            count = min(BLOCK_WRITES, writes - len(alone))
            alone += _appends(connection, count)
            with _readers(address):
                beside += _appends(connection, count)
    finally:
        connection.close()
    return Spread.of(alone), Spread.of(beside)


def _appends(connection: LoneConnection, count: int) -> list[float]:
    took = []
    for number in range(count):
        seconds, body = connection.call(append_request(WRITTEN, [job(number)]))
        expect_count(body, 1)
        took.append(seconds)
    return took


@contextmanager
def _readers(address: str) -> Iterator[None]:
    """Readers at work; they have begun when this gives way."""
    with Client(f"http://{address}") as client:
        names = [segment.id for segment in client.segments("jobs")]
    context = multiprocessing.get_context("fork")
    is_over = context.Event()
    begun = context.Barrier(READERS + 1)
    running = [
        context.Process(target=_read_on, args=(address, names, begun, is_over))
        for _ in range(READERS)
    ]
    for process in running:
        process.start()
    try:
        begun.wait(10)
        yield
    finally:
        is_over.set()
        for process in running:
            process.join(5)
            process.kill()


def _read_on(address: str, names: list[str], begun: object, is_over: Event) -> None:
    """Take the bytes of all segments, again and again."""
    host, _, port = address.rpartition(":")
    buffer = bytearray(BUFFER_BYTES)
    is_first = True
    with socket.create_connection((host, int(port))) as line:
        while not is_over.is_set():
            for name in names:
                line.sendall(request("GET", f"/v0/log/segments/{name}"))
                head = b""
                while b"\r\n\r\n" not in head:
                    head += line.recv(4096)
                if is_first:
                    begun.wait(10)  # type: ignore[attr-defined]
                    is_first = False
                fields, _, rest = head.partition(b"\r\n\r\n")
                length = next(
                    int(field[15:])
                    for field in fields.lower().split(b"\r\n")
                    if field.startswith(b"content-length:")
                )
                length -= len(rest)
                while length > 0:
                    length -= line.recv_into(buffer, min(length, BUFFER_BYTES))
