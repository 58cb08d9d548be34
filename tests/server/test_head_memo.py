"""A head that is known means exactly what it means when it is parsed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from logqueue.server.auth import KeyRing, parse_keys
from logqueue.server.http.head_memo import HEADS_MAX, KNOWN_HEAD_BYTES_MAX, HeadMemo
from tests.effort import scaled
from tests.server.lines import Line
from tests.server.stepped import Stepped, append, claim, request, statuses, steady

KEYS = "all,writer:write:q,reader:read,capped"
FEWER_KEYS = "all,writer:write:other"
ROUNDS = scaled(short=150, thorough=1500)

FIELDS = (
    b"accept: */*", b"user-agent: x", b"Content-Length: 0", b"content-length: 24",
    b"CONTENT-LENGTH: 24", b"content-length:", b"content-length: ", b"content-length: 1, 2",
    b"expect: 100-continue", b"expect: more", b"transfer-encoding: chunked", b"connection: close",
    b"connection: upgrade", b"upgrade: websocket", b"upgrade: h2c", b"idempotency-key: one",
    b"host: elsewhere", b"origin: http://elsewhere", b"content-type: text/plain",
    b"x-content-length: 7", b"x:\tcontent-length: 9", b"authorization: Bearer reader",
    b"sec-fetch-site: cross-site", b"folded: 1\r\n 2",
)  # fmt: skip
LENGTHS = (b"", b"0", b"1", b"007", b"24", b"+24", b"-1", b"0x18", b"24 ", b"\t24", b"999999999",
           b"9999999999", b"2 4")  # fmt: skip
QUERIES = ("return_seqs=false", "return_seqs=false", "return_seqs=true", "return_seqs=maybe",
           "return_seqs=%ff", "token=all", "")  # fmt: skip


def anything(chance: random.Random) -> bytes:
    """A request: mostly one of few, sometimes one that is nearly the same."""
    key = chance.choice(("all", "all", "all", "writer", "reader", "nosuch", ""))
    topic = chance.choice(("q", "q", "q", "q", "q", "other", "none", "%71"))
    options: dict[str, Any] = {"key": key}
    body = chance.choice((b'{"records":[]}', b'{"records":[{"data":1}]}'))
    content = chance.choice(
        (
            append(topic, b"%d" % 10 ** chance.randrange(12), **options),
            append(topic, **options),
            claim(topic, **options),
            claim(topic, chance.choice(("w", "a longer name")), **options),
            request("POST", f"/v0/topics/{topic}/ack", b'{"node":"w","seqs":[1,2]}', **options),
            request("POST", f"/v0/topics/{topic}/diff", b'{"from_seq":0}', **options),
            request("POST", f"/v0/topics/{topic}?{chance.choice(QUERIES)}", body, **options),
            request("GET", f"/v0/topics/{topic}", **options),
            request("PUT", f"/v0/topics/{topic}", b'{"type":"queue"}', **options),
            request("DELETE", f"/v0/topics/{topic}", **options),
            request("GET", "/v0/health", **options),
        )
    )
    kind = chance.randrange(24)
    if kind == 0:
        content = content.replace(b"\r\n", b"\r\n" + chance.choice(FIELDS) + b"\r\n", 1)
    elif kind == 1:
        head, mark, rest = content.partition(b"content-length: ")
        if mark:
            _, _, body = rest.partition(b"\r\n")
            content = head + mark + chance.choice(LENGTHS) + b"\r\n" + body
    elif kind == 2:
        at = chance.randrange(len(content))
        content = content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    elif kind == 3:
        content = content.replace(b"content-length", b"Content-Length").replace(b"1.1", b"1.0")
    return content


def in_pieces(chance: random.Random, content: bytes) -> list[bytes]:
    """The same in some packets."""
    cuts = sorted(chance.randrange(len(content)) for _ in range(chance.choice((0, 0, 1, 3))))
    return [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True) if a < b]


async def same(seed: int) -> tuple[int, int]:
    """Say the same to a server with a memo and one without; how often a head was known."""
    chance = random.Random(seed)
    servers = [Stepped(KEYS, has_memo=is_on, max_inflight_per_key=1) for is_on in (True, False)]
    find, found = servers[0].api.heads.find, [0, 0]

    def counted(data: bytes, at: int, ring: KeyRing) -> Any:
        known = find(data, at, ring)
        found[known is not None] += 1
        return known

    vars(servers[0].api.heads)["find"] = counted
    lines: list[list[Line]] = [[], []]
    for step in range(ROUNDS):
        event = chance.randrange(40)
        if event == 0:
            ring = parse_keys(chance.choice((KEYS, FEWER_KEYS)))
            for server in servers:
                server.runtime.service.change_keys(ring)
        content = b"".join(anything(chance) for _ in range(chance.choice((1, 1, 2, 8))))
        packets = in_pieces(chance, content)
        at = chance.randrange(4)
        replies = []
        for server, known in zip(servers, lines, strict=True):
            while len(known) <= at:
                known.append(server.connect())
            line = known[at]
            if line.is_closed:
                line = known[at] = server.connect()
            if event == 1:
                line.hang_up()
                line = known[at] = server.connect()
            replies.append((steady(await server.talk(line, *packets)), line.is_closed))
        assert replies[0] == replies[1], (seed, step, packets)
        if replies[0][1] or b"connection: close" in replies[0][0]:
            for known in lines:
                known[at].hang_up()
    for server, known in zip(servers, lines, strict=True):
        for line in known:
            line.hang_up()
        assert not server.runtime.service.inflight
        assert server.runtime.service.memory.used == 0
    answered = [
        {labels: latency.total for labels, latency in server.runtime.metrics._requests.items()}
        for server in servers
    ]
    assert answered[0] == answered[1]
    for server in servers:
        await server.stop()
    return found[0], found[1]


@pytest.mark.parametrize("seed", range(scaled(short=3, thorough=20)))
def test_replies_are_the_same_with_and_without(seed: int) -> None:
    unknown, known = asyncio.run(same(seed))
    assert min(unknown, known) > ROUNDS // 5


def serving(scenario: Callable[[Stepped], Any], keys: str = KEYS, **settings: Any) -> None:
    """Run a scenario on a server."""

    async def main() -> None:
        server = Stepped(keys, **settings)
        await scenario(server)
        await server.stop()

    asyncio.run(main())


def find(server: Stepped, content: bytes) -> bool:
    """Whether the head of a request is known."""
    return server.api.heads.find(content, 0, server.runtime.service.keys) is not None


def test_bodies_of_any_length_share_a_head() -> None:
    async def scenario(server: Stepped) -> None:
        line = server.connect()
        await server.talk(line, append(key="all"))
        assert find(server, append(data=b"1" * 300, key="all"))
        assert not find(server, append(key="writer"))
        assert not find(server, append("other", key="all"))

    serving(scenario)


def test_a_query_belongs_to_its_head() -> None:
    async def scenario(server: Stepped) -> None:
        bodies = [
            request("POST", f"/v0/topics/q{query}", b'{"records":[{"data":1}]}', key="all")
            for query in ("?return_seqs=false", "?return_seqs=true", "")
        ]
        replies = [steady(await server.talk(server.connect(), content)) for content in bodies]
        assert [b'"first_seq"' in reply for reply in replies] == [True, True, True]
        assert [b'"seqs"' in reply for reply in replies] == [False, True, True]
        for content, reply in zip(bodies, replies, strict=True):
            assert find(server, content)
            again = steady(await server.talk(server.connect(), content))
            assert (b'"seqs"' in again) is (b'"seqs"' in reply)
        refused = request("POST", "/v0/topics/q?return_seqs=%ff", bodies[0][-24:], key="all")
        for _ in range(2):
            assert statuses(await server.talk(server.connect(), refused)) == [400]

    serving(lambda server: setup(server, scenario))


@pytest.mark.parametrize("query", ["from_seq=1", "token=all", "to%6ben=all"])
def test_a_query_that_comes_once_or_is_a_secret_is_not_kept(query: str) -> None:
    async def scenario(server: Stepped) -> None:
        method, body = ("GET", b"") if query == "from_seq=1" else ("POST", b'{"from_seq":0}')
        path = "/v0/topics/q" + ("/diff" if body else "")
        content = request(method, f"{path}?{query}", body, key="all")
        assert statuses(await server.talk(server.connect(), content)) == [200]
        assert not find(server, content)

    serving(lambda server: setup(server, scenario))


def test_an_empty_length_is_not_taken_for_a_known_one() -> None:
    """What is left of a known head without its length is a head of its own, and malformed."""

    async def scenario(server: Stepped) -> None:
        content = append(key="all")
        assert statuses(await server.talk(server.connect(), content)) == [200]
        cut = content.replace(b"content-length: 24", b"content-length: ")
        assert cut != content
        assert statuses(await server.talk(server.connect(), cut)) == [400]

    serving(lambda server: setup(server, scenario))


async def setup(server: Stepped, scenario: Callable[[Stepped], Any]) -> None:
    """Go on with a queue."""
    made = request("PUT", "/v0/topics/q", b'{"type":"queue"}', key="all")
    assert statuses(await server.talk(server.connect(), made)) == [201]
    await scenario(server)


def test_a_removed_key_is_unknown_at_once() -> None:
    async def scenario(server: Stepped) -> None:
        line = server.connect()
        for ring, expected in ((KEYS, 200), (FEWER_KEYS, 403), ("all", 401), (KEYS, 200)):
            server.runtime.service.change_keys(parse_keys(ring))
            for _ in range(3):
                assert statuses(await server.talk(line, append(key="writer"))) == [expected]

    serving(lambda server: setup(server, scenario))


def test_a_dropped_topic_is_unknown_at_once() -> None:
    async def scenario(server: Stepped) -> None:
        line = server.connect()
        expected = [request("DELETE", "/v0/topics/q", key="all"), claim(key="all")]
        assert statuses(await server.talk(line, claim(key="all"), *expected)) == [200, 200, 404]
        made = request("PUT", "/v0/topics/q", b"{}", key="all")
        assert statuses(await server.talk(line, made, claim(key="all"))) == [201, 409]

    serving(lambda server: setup(server, scenario))


def test_a_body_that_is_too_long_is_refused() -> None:
    async def scenario(server: Stepped) -> None:
        await server.talk(server.connect(), append(key="all"))
        long = append(data=b"1" * 5000, key="all")
        assert not find(server, long)
        assert statuses(await server.talk(server.connect(), long)) == [413]

    serving(lambda server: setup(server, scenario), max_body_bytes=1024)


def test_no_secret_is_kept() -> None:
    async def scenario(server: Stepped) -> None:
        await server.talk(server.connect(), append(key="all") + claim(key="all"))
        memo = server.api.heads
        kept = [*memo._young.items(), *memo._old.items()]
        assert len(kept) >= 2
        for digest, known in kept:
            assert len(digest) == 16
            assert b"Bearer" not in repr(known).encode()
            assert [name for name, _ in known.headers] == [b"content-type"]

    serving(lambda server: setup(server, scenario))


def test_two_servers_know_a_head_by_different_digests() -> None:
    one, other = HeadMemo(), HeadMemo()
    head = append(key="all")
    assert one._digest(head, 0, 9, None) != other._digest(head, 0, 9, None)


def test_a_head_in_use_outlives_any_number_of_others() -> None:
    async def scenario(server: Stepped) -> None:
        line = server.connect()
        await server.talk(line, append(key="all"))
        for number in range(3 * HEADS_MAX):
            field = b"traceparent: %d" % number
            line.send(request("GET", "/v0/health", b"", field, key="all"))
            line.read()
            if number % 100 == 0:
                assert find(server, append(key="all"))
        memo = server.api.heads
        assert len(memo._young) + len(memo._old) <= 2 * HEADS_MAX
        long = request("GET", "/v0/health", b"", b"x: " + b"x" * KNOWN_HEAD_BYTES_MAX, key="all")
        line.send(long)
        assert not find(server, long)

    serving(lambda server: setup(server, scenario))
