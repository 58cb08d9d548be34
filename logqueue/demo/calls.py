"""The few HTTP calls the demo makes, typed, patient with a server that is down for a while.

Owns: the shapes of requests and replies the demo uses, retry with backoff, the reading of event
streams. Every append carries an idempotency key, so that a repeated call has no second effect.
Must not know: what the jobs mean.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

Reply = TypeVar("Reply")

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 0.5
CALL_TIMEOUT_S = 20.0
STREAM_TIMEOUT_S = 40.0
PAGE_RECORDS = 1000
RETRYABLE_STATUSES = frozenset({429, 503})


class Refused(Exception):
    """The server answered with an error that a retry would not change."""


class Unreachable(Exception):
    """The server did not answer for as long as the caller was ready to wait."""


class Source(msgspec.Struct, frozen=True):
    """What a job carries: which file to measure, and its name in reports."""

    path: str
    name: str


class Job(msgspec.Struct, frozen=True):
    """One leased job."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deadline: int
    deliveries: int
    data: Source


class Claimed(msgspec.Struct, frozen=True):
    """Reply to a claim."""

    claimed: list[Job]


class Acked(msgspec.Struct, frozen=True):
    """Reply to an ack."""

    acked: int
    skipped: list[int]


class Nacked(msgspec.Struct, frozen=True):
    """Reply to a nack."""

    nacked: int
    skipped: list[int]


class Appended(msgspec.Struct, frozen=True):
    """Reply to a write."""

    first_seq: int
    last_seq: int
    deduped: bool


class Counters(msgspec.Struct, frozen=True):
    """The queue part of a topic's state."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(msgspec.Struct, frozen=True):
    """The state of a topic, as far as the demo looks at it."""

    head_seq: int
    count: int
    queue: Counters | None = None


class LogRecord(msgspec.Struct, frozen=True):
    """One record of a page; data stays as bytes for the caller to type."""

    seq: int = msgspec.field(name="$seq")
    data: msgspec.Raw
    meta: dict[str, object] = msgspec.field(default_factory=dict)


class Page(msgspec.Struct, frozen=True):
    """Reply to a diff."""

    records: list[LogRecord]
    next_from_seq: int
    caught_up: bool


class Calls:
    """Calls over one keep-alive connection that is opened again when it breaks."""

    def __init__(self, address: str, patience_s: float = 60.0) -> None:
        self.retried = 0
        self._address = address
        self._patience_s = patience_s
        self._connection = http.client.HTTPConnection(address, timeout=CALL_TIMEOUT_S)

    def configure(self, topic: str, config: dict[str, object]) -> None:
        """Create or reconfigure a topic."""
        self._call("PUT", f"/v0/topics/{topic}", config, dict[str, object])

    def append(self, topic: str, records: Sequence[object], key: str) -> Appended:
        """Append records once, however often the call has to be sent."""
        body = {"records": [{"data": data} for data in records], "idempotency_key": key}
        return self._call("POST", f"/v0/topics/{topic}?return_seqs=false", body, Appended)

    def claim(self, queue: str, node: str, jobs_max: int) -> list[Job]:
        """Lease up to jobs_max jobs."""
        body = {"node": node, "max": jobs_max}
        return self._call("POST", f"/v0/topics/{queue}/claim", body, Claimed).claimed

    def ack(self, queue: str, node: str, jobs: Sequence[Job]) -> set[int]:
        """Complete jobs; returns the seqs that were no longer ours."""
        reply = self._call("POST", f"/v0/topics/{queue}/ack", _leased(node, jobs), Acked)
        return set(reply.skipped)

    def nack(self, queue: str, node: str, jobs: Sequence[Job], delay_ms: int) -> set[int]:
        """Give jobs back for a later try; returns the seqs that were no longer ours."""
        body = {**_leased(node, jobs), "delay_ms": delay_ms}
        return set(self._call("POST", f"/v0/topics/{queue}/nack", body, Nacked).skipped)

    def state(self, topic: str) -> TopicState:
        """The state of a topic."""
        return self._call("GET", f"/v0/topics/{topic}", None, TopicState)

    def records(self, topic: str) -> Iterator[LogRecord]:
        """Every record of a topic, page by page."""
        from_seq, caught_up = 0, False
        while not caught_up:
            body = {"from_seq": from_seq, "limit": PAGE_RECORDS}
            page = self._call("POST", f"/v0/topics/{topic}/diff", body, Page)
            yield from page.records
            from_seq, caught_up = page.next_from_seq, page.caught_up

    def _call(self, method: str, path: str, body: object, kind: type[Reply]) -> Reply:
        content = b"" if body is None else msgspec.json.encode(body)
        give_up = time.monotonic() + self._patience_s
        pause = BACKOFF_FIRST_S
        while True:
            try:
                status, reply = self._exchange(method, path, content)
                if status < 300:
                    return msgspec.json.decode(reply, type=kind)
                problem = f"{method} {path}: {status} {reply.decode(errors='replace')}"
                if status not in RETRYABLE_STATUSES:
                    raise Refused(problem)
            except (OSError, http.client.HTTPException) as failure:
                self._connection.close()
                problem = f"{method} {path}: {failure!r}"
            if time.monotonic() > give_up:
                raise Unreachable(problem)
            self.retried += 1
            time.sleep(pause)
            pause = min(pause * 2, BACKOFF_MAX_S)

    def _exchange(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        headers = {"content-type": "application/json"} if content else {}
        self._connection.request(method, path, body=content or None, headers=headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def stream_jobs(address: str, queue: str, node: str, in_flight_max: int) -> Iterator[Job]:
    """The jobs of one work stream, until the stream ends.

    Raises OSError or HTTPException when the connection breaks; a stream that can not be opened
    for now counts as broken.
    """
    connection = http.client.HTTPConnection(address, timeout=STREAM_TIMEOUT_S)
    try:
        connection.request(
            "GET",
            f"/v0/topics/{queue}/work?node={node}&max={in_flight_max}",
            headers={"accept": "text/event-stream"},
        )
        response = connection.getresponse()
        if response.status in RETRYABLE_STATUSES:
            raise ConnectionRefusedError(f"work stream: status {response.status}")
        if response.status != 200:
            raise Refused(f"work stream: {response.status} {response.read()!r}")
        event = b""
        while line := response.readline():
            name, _, text = line.rstrip(b"\r\n").partition(b":")
            if name == b"event":
                event = text.strip()
            elif name == b"data" and event == b"job":
                yield msgspec.json.decode(text, type=Job)
            elif name == b"data" and event == b"error":
                return
    finally:
        connection.close()


def _leased(node: str, jobs: Sequence[Job]) -> dict[str, object]:
    return {
        "node": node,
        "seqs": [job.seq for job in jobs],
        "lease_ids": [job.lease_id for job in jobs],
    }
