"""A load generator that costs little, because it shares the machine with the server it measures.

Owns: requests as ready-made bytes, connections that read just enough of a reply to check it, work
streams, and one blocking connection for latencies. Must not know: what is being measured.

A reply that is not 200 or 201, or that is not what the caller expected, ends the measurement.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any, cast

import msgspec

JOB_BYTES = 100
GIVE_UP_S = 300.0
RECEIVE_BYTES = 262_144
HEAD_END = b"\r\n\r\n"
GOOD_STATUSES = (b"200", b"201")

Step = Callable[[Any], bytes | None]
READ_AHEAD_BYTES = 4096
"""Pipelined replies are shorter."""

Read = Callable[[bytes], tuple[Any, int] | None]
"""Takes what has arrived; returns the first whole reply and where it ends, or None to wait on."""

Script = Generator[tuple[bytes, Read], Any, None]
"""One connection's requests, each with how its reply is read; it is sent the reply."""


class LoadFailed(Exception):
    """A reply was not what it has to be, so there is nothing to report."""


class JobData(msgspec.Struct):
    """The payload of a job, as far as a measurement looks at it."""

    n: int


class Lease(msgspec.Struct):
    """One job as claimed or as streamed."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deliveries: int
    data: JobData
    group: str | None = None


class Claimed(msgspec.Struct):
    """Reply to a claim."""

    claimed: list[Lease]
    count: int


class Acked(msgspec.Struct):
    """Reply to an ack."""

    acked: int
    skipped: list[int]


class Counters(msgspec.Struct):
    """The queue part of a topic's state."""

    ready: int
    in_flight: int


class TopicState(msgspec.Struct):
    """A topic's state."""

    head_seq: int
    count: int
    queue: Counters


decode_claimed = msgspec.json.Decoder(Claimed).decode
decode_acked = msgspec.json.Decoder(Acked).decode
decode_lease = msgspec.json.Decoder(Lease).decode
decode_state = msgspec.json.Decoder(TopicState).decode


def job(number: int) -> bytes:
    """The JSON of one payload of JOB_BYTES bytes."""
    start = b'{"n":%d,"type":"transcode","src":"s3://uploads/clip-%08d.mov","preset":"' % (
        number,
        number,
    )
    return (
        start
        + b"h264-1080p-and-more-than-that"[: JOB_BYTES - len(start) - 2].ljust(
            JOB_BYTES - len(start) - 2, b"."
        )
        + b'"}'
    )


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of one request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def append_request(topic: str, jobs: Sequence[bytes], query: str = "") -> bytes:
    """Append these payloads in one request."""
    records = b",".join(b'{"data":' + data + b"}" for data in jobs)
    return request("POST", f"/v0/topics/{topic}{query}", b'{"records":[' + records + b"]}")


def claim_request(topic: str, node: str, jobs_max: int) -> bytes:
    """Claim up to jobs_max jobs."""
    body = msgspec.json.encode({"node": node, "max": jobs_max})
    return request("POST", f"/v0/topics/{topic}/claim", body)


def ack_request(topic: str, node: str, leases: Sequence[Lease]) -> bytes:
    """Ack exactly these leases, fenced by their ids."""
    body = msgspec.json.encode(
        {
            "node": node,
            "seqs": [lease.seq for lease in leases],
            "lease_ids": [lease.lease_id for lease in leases],
        }
    )
    return request("POST", f"/v0/topics/{topic}/ack", body)


def queue_request(topic: str) -> bytes:
    """Make a queue of class fsync."""
    return request("PUT", f"/v0/topics/{topic}", b'{"type":"queue","durable":true}')


def expect_count(body: bytes, count: int) -> None:
    """A write's reply must speak of this many records."""
    if b'"count":%d,' % count not in body:
        raise LoadFailed(f"a write of {count} records was answered with {body[:200]!r}")


def expect_acked(body: bytes, count: int) -> None:
    """An ack's reply must have taken all seqs."""
    reply = decode_acked(body)
    if reply.acked != count or reply.skipped:
        raise LoadFailed(f"an ack of {count} jobs was answered with {body[:200]!r}")


def read_reply(data: bytes) -> tuple[bytes, int] | None:
    """The body and the end of the first whole reply in data; None when there is none yet."""
    head = data.find(HEAD_END)
    if head < 0:
        return None
    if data[9:12] not in GOOD_STATUSES:
        raise LoadFailed(f"refused: {data[:400]!r}")
    at = data.find(b"content-length:", 0, head)
    if at < 0:
        at = data[:head].lower().find(b"content-length:")
        if at < 0:
            raise LoadFailed(f"a reply without content-length: {data[:head]!r}")
    line_end = data.find(b"\r", at)
    end = head + 4 + int(data[at + 15 : line_end])
    if len(data) < end:
        return None
    return data[head + 4 : end], end


def read_replies(count: int) -> Read:
    """Takes so many replies at once: their bodies."""

    def read(data: bytes) -> tuple[list[bytes], int] | None:
        bodies: list[bytes] = []
        at = 0
        while len(bodies) < count:
            reply = read_reply(data[at : at + READ_AHEAD_BYTES])
            if reply is None:
                return None
            bodies.append(reply[0])
            at += reply[1]
        return bodies, at

    return read


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way: a closed loop."""

    def __init__(self) -> None:
        self._read: Read = read_reply
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._step: Step | None = None
        self._ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by duck only

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up: an error while a reply is awaited."""
        self._fail(LoadFailed(f"the server closed the connection ({exc!r})"))

    def data_received(self, data: bytes) -> None:
        """A reply, or a part of one."""
        if self._partial:
            data = self._partial + data
        try:
            reply = self._read(data)
            if reply is None:
                self._partial = data
                return
            body, end = reply
            if end != len(data) or self._step is None:
                raise LoadFailed(f"unexpected bytes: {data[end:][:200]!r}")
            self._partial = b""
            following = self._step(body)
        except Exception as failure:  # to the one who waits, not into the event loop's log
            self._fail(failure)
            return
        if following is not None:
            assert self._transport is not None
            self._transport.write(following)
            return
        self._step = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def drive(self, first: bytes, step: Step) -> asyncio.Future[None]:
        """Send first, then whatever step makes of each reply, until it makes nothing of one."""
        assert self._transport is not None and self._step is None
        self._step = step
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(first)
        return self._ended

    def run(self, script: Script) -> asyncio.Future[None]:
        """Send what a script yields, one request after the other, until it ends."""

        def step(reply: Any) -> bytes | None:
            try:
                content, self._read = script.send(reply)
            except StopIteration:
                return None
            return content

        content, self._read = next(script)
        return self.drive(content, step)

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return self._step is None

    async def call(self, content: bytes, read: Read = read_reply) -> Any:
        """One request and its reply: the body of one over HTTP."""
        bodies: list[Any] = []
        self._read = read
        await self.drive(content, bodies.append)
        return bodies[0]

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._step = None
        self._transport.abort()

    def _fail(self, failure: Exception) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(failure)


class WorkStream(asyncio.Protocol):
    """One `/work` stream; hands over the jobs of each arrival at once."""

    def __init__(
        self,
        opening: bytes,
        on_jobs: Callable[[list[Lease]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._opening = opening
        self._on_jobs = on_jobs
        self._failed = failed
        self._transport: asyncio.Transport | None = None
        self._raw = b""
        self._text = b""
        self._opened = False
        self._chunked = False
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._opening)

    def connection_lost(self, exc: Exception | None) -> None:
        """Streams end only when we end them."""
        if not self._closing:
            self._failed(LoadFailed(f"a work stream ended ({exc!r})"))

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in parts."""
        try:
            self._raw = self._raw + data if self._raw else data
            if not self._opened and not self._read_head():
                return
            self._text += self._take_chunks() if self._chunked else self._take_all()
            jobs = self._take_jobs()
            if jobs:
                self._on_jobs(jobs)
        except Exception as failure:  # to the one who waits, not into the event loop's log
            self._failed(failure)

    def close(self) -> None:
        """Hang up, which releases what this stream holds."""
        assert self._transport is not None
        self._closing = True
        self._transport.abort()

    def _read_head(self) -> bool:
        end = self._raw.find(HEAD_END)
        if end < 0:
            return False
        head = self._raw[:end].lower()
        if self._raw[9:12] != b"200" or b"text/event-stream" not in head:
            raise LoadFailed(f"no work stream: {self._raw[:400]!r}")
        self._chunked = b"transfer-encoding: chunked" in head
        self._raw = self._raw[end + 4 :]
        self._opened = True
        return True

    def _take_all(self) -> bytes:
        raw, self._raw = self._raw, b""
        return raw

    def _take_chunks(self) -> bytes:
        raw, at, parts = self._raw, 0, []
        while (line_end := raw.find(b"\r\n", at)) >= 0:
            size = int(raw[at:line_end], 16)
            start = line_end + 2
            if len(raw) < start + size + 2:
                break
            parts.append(raw[start : start + size])
            at = start + size + 2
        self._raw = raw[at:]
        return b"".join(parts)

    def _take_jobs(self) -> list[Lease]:
        *frames, self._text = self._text.split(b"\n\n")
        jobs = []
        for frame in frames:
            at = frame.find(b"data:")
            if at < 0:
                continue  # a heartbeat, or the retry line at the start
            if b"event: job" not in frame[:at]:
                raise LoadFailed(f"not a job: {frame[:200]!r}")
            jobs.append(decode_lease(frame[at + 5 :]))
        return jobs


class LoneConnection:
    """One blocking connection: the least overhead on our side, for latencies."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=GIVE_UP_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, content: bytes) -> tuple[float, bytes]:
        """One request: seconds until the whole reply is here, and its body."""
        began = perf_counter()
        self._socket.sendall(content)
        data = self._socket.recv(RECEIVE_BYTES)
        while (reply := read_reply(data)) is None:
            more = self._socket.recv(RECEIVE_BYTES)
            if not more:
                raise LoadFailed("the server closed the connection")
            data += more
        return perf_counter() - began, reply[0]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


async def connect(address: str, count: int) -> list[Connection]:
    """That many connections."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Connection, host, int(port)))[1] for _ in range(count)]


async def open_stream(
    address: str,
    path: str,
    on_jobs: Callable[[list[Lease]], None],
    failed: Callable[[Exception], None],
) -> WorkStream:
    """A work stream that has been asked for."""
    host, _, port = address.rpartition(":")
    opening = (
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode()
    )
    loop = asyncio.get_running_loop()
    made = await loop.create_connection(
        lambda: WorkStream(opening, on_jobs, failed), host, int(port)
    )
    return made[1]


async def all_of(loops: Sequence[asyncio.Future[None]]) -> None:
    """Wait for closed loops; the first failure is everybody's."""
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.gather(*loops)


async def fill(address: str, topic: str, jobs: int, per_request: int, connections: int) -> None:
    """Append that many jobs, and see that they are there."""
    assert jobs % per_request == 0, "whole requests only"
    made = await connect(address, connections)
    bodies = [
        append_request(topic, [job(n * per_request + k) for k in range(per_request)])
        for n in range(64)
    ]
    left = jobs // per_request

    def following() -> bytes | None:
        nonlocal left
        if left == 0:
            return None
        left -= 1
        return bodies[left % len(bodies)]

    def step(body: bytes) -> bytes | None:
        expect_count(body, per_request)
        return following()

    loops = []
    for connection in made:
        first = following()
        if first is not None:
            loops.append(connection.drive(first, step))
    await all_of(loops)
    state = decode_state(await made[0].call(request("GET", f"/v0/topics/{topic}")))
    for connection in made:
        connection.close()
    if state.count != jobs:
        raise LoadFailed(f"{jobs} jobs appended, the server counts {state.count}")
