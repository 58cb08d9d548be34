"""The server in memory answers by the path that a socket takes: same grammar, same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logqueue.testing.core import Exchange
from tests.server.memory import Memory

JSON = (b"content-type", b"application/json")


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """One server for all."""
    server = Memory()
    yield server
    server.close()


def ask(memory: Memory, method: str, path: bytes, *headers: tuple[bytes, bytes]) -> Exchange:
    """Send a request without a body."""
    exchange = Exchange(method, path, b"", list(headers))
    memory.core.submit(exchange, b"")
    assert exchange.is_over
    return exchange


def test_head_has_the_length_and_no_body(memory: Memory) -> None:
    exchange = ask(memory, "HEAD", b"/v0/health")
    assert (exchange.status, exchange.take()) == (200, b"")
    assert int(dict(exchange.headers)[b"content-length"]) > 0


@pytest.mark.parametrize(
    "header",
    [(b"host", b"other.example"), (b"content-length", b"x"), (b"bad name", b"x"), (b"x", b"a\nb")],
)
def test_what_a_connection_refuses_is_refused(memory: Memory, header: tuple[bytes, bytes]) -> None:
    assert ask(memory, "GET", b"/v0/health", header).status in (400, 403)


def test_a_request_that_is_not_whole_has_no_reply_yet(memory: Memory) -> None:
    """Memory for clients is accounted as on a socket, and freed when the client hangs up."""
    exchange = Exchange("POST", b"/v0/topics/t", b"", [JSON, (b"content-length", b"1000000")])
    memory.core.submit(exchange, b"x" * 100_000)
    held = memory.core._service.memory
    assert not exchange.is_over and held.used >= 100_000
    memory.core.hang_up(exchange)
    assert exchange.is_broken and held.used == 0


def test_large_and_streamed_replies_are_whole(memory: Memory) -> None:
    memory.queue("large")
    for _ in range(3):
        memory.append("x" * 900_000, topic="large")
    reply = memory.call("POST", "topics/large/diff", {"max_batch_bytes": 8 << 20})
    assert [len(record["data"]) for record in reply["records"]] == [900_000] * 3
    stream = memory.work(topic="large", jobs_max=3)
    assert stream.take().count(b"event: job") == 3
    memory.core.hang_up(stream)
    assert memory.core._service.streams == 0
