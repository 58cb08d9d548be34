"""What a lone writer waits while others read the whole log, as fast as it comes.

Owns: the rows of read-append. The readers are processes of their own that take
the bytes of all segments and do nothing with them: what is measured is the server, not how much of
the machine the readers leave it.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event

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
READERS = {1: "read-append", 2: "read-append-2"}
"""Names of rows by how many read: one, and as many as a machine with two cores runs tasks."""
BLOCK_WRITES = 100
PER_REQUEST, CONNECTIONS = 100, 4
BUFFER_BYTES = 1 << 20


def read_append(session: Session) -> list[Row]:
    """Append alone and beside readers, in turns, so that all see the same mood of the machine."""
    alone = Row("read-append-alone-p99", "append, 1 per request, p99, no readers", "ms")
    rows: list[Row] = []
    for count, name in READERS.items():
        who = f"beside {count} reader{'s' if count > 1 else ''}"
        rows += [
            Row(f"{name}-ratio", f"append p99 {who} of all segments, over p99 alone",
                "times", Target(2.0, at_most=True)),
            Row(f"{name}-ratio-p50", "the same of p50", "times"),
            Row(f"{name}-beside-p99", f"append, 1 per request, p99, {who}", "ms"),
            Row(f"{name}-rate", f"bytes read meanwhile, {who}", "MB/s"),
        ]  # fmt: skip
    for _ in range(session.scale.repeats):
        with session.server() as server:
            _fill(server.address, session.scale.read_records)
            one, others = _in_turns(server.address, session.scale.lone_writes)
        alone.values.append(one.p99_ms)
        told = f"  read-append: p50 {one.p50_ms:.3f} ms alone, p99 {one.p99_ms:.3f} ms"
        for place, (count, (other, rate)) in enumerate(others.items()):
            found = (other.p99_ms / one.p99_ms, other.p50_ms / one.p50_ms, other.p99_ms, rate)
            for row, value in zip(rows[4 * place : 4 * place + 4], found, strict=True):
                row.values.append(value)
            told += f"; beside {count}: {other.p50_ms:.3f} and {other.p99_ms:.3f} ms"
        session.tell(told)
    return [*rows, alone]


def _fill(address: str, records: int) -> None:
    connection = LoneConnection(address)
    connection.call(queue_request(READ))
    connection.close()
    uvloop.run(fill(address, READ, records, PER_REQUEST, CONNECTIONS))


def _in_turns(address: str, writes: int) -> tuple[Spread, dict[int, tuple[Spread, float]]]:
    """Latencies alone, and by number of readers, with the MB that those read per second."""
    alone: list[float] = []
    beside: dict[int, list[float]] = {count: [] for count in READERS}
    read_mb = dict.fromkeys(READERS, 0.0)
    connection = LoneConnection(address)
    try:
        connection.call(queue_request(WRITTEN))
        while len(alone) < writes:
            block = min(BLOCK_WRITES, writes - len(alone))
            alone += _appends(connection, block)
            for count, took in beside.items():
                with _readers(address, count) as read_bytes:
                    before = read_bytes()
                    took += _appends(connection, block)
                    read_mb[count] += (read_bytes() - before) / 1e6
    finally:
        connection.close()
    found = {count: (Spread.of(took), read_mb[count] / sum(took)) for count, took in beside.items()}
    return Spread.of(alone), found


def _appends(connection: LoneConnection, count: int) -> list[float]:
    took = []
    for number in range(count):
        seconds, body = connection.call(append_request(WRITTEN, [job(number)]))
        expect_count(body, 1)
        took.append(seconds)
    return took


@contextmanager
def _readers(address: str, count: int) -> Iterator[Callable[[], int]]:
    """Readers at work; they have begun when this gives way. Gives how many bytes they have read."""
    with Client(f"http://{address}") as client:
        names = [segment.id for segment in client.segments("jobs")]
    context = multiprocessing.get_context("fork")
    is_over = context.Event()
    begun = context.Barrier(count + 1)
    read_bytes = context.RawArray("q", count)
    running = [
        context.Process(target=_read_on, args=(address, names, begun, is_over, read_bytes, place))
        for place in range(count)
    ]
    for process in running:
        process.start()
    try:
        begun.wait(10)
        yield lambda: sum(read_bytes)
    finally:
        is_over.set()
        for process in running:
            process.join(5)
            process.kill()


def _read_on(
    address: str,
    names: list[str],
    begun: Barrier,
    is_over: Event,
    read_bytes: MutableSequence[int],
    place: int,
) -> None:
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
                    begun.wait(10)
                    is_first = False
                fields, _, rest = head.partition(b"\r\n\r\n")
                length = next(
                    int(field[15:])
                    for field in fields.lower().split(b"\r\n")
                    if field.startswith(b"content-length:")
                )
                length -= len(rest)
                while length > 0:
                    taken = line.recv_into(buffer, min(length, BUFFER_BYTES))
                    length -= taken
                    read_bytes[place] += taken
