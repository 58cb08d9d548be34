"""Pipelined requests: one sync, one write, replies in order, and bounds on all that waits."""

from __future__ import annotations

import asyncio
import gc
import random
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from logqueue.server.engine import turn
from logqueue.server.http.connection import BACKLOG_BYTES_MAX, BYTES_PER_STEP, PIPELINED_MAX
from logqueue.testing.virtual import VirtualLoop, VirtualTime
from tests.effort import scaled
from tests.server.lines import Line, turns
from tests.server.stepped import Stepped, append, begun, claim, request, statuses, steady

QUEUE = b'{"type":"queue","durable":true}'
Scenario = Callable[[Stepped, Line], Any]


def run(scenario: Scenario, keys: str = "", **settings: Any) -> None:
    """Run a scenario on a server with a queue, over a connection whose heads are known."""

    async def main() -> None:
        server = Stepped(keys, **settings)
        key = keys.partition(":")[0]
        line = server.connect()
        made = request("PUT", "/v0/topics/q", QUEUE, key=key)
        empty = b'{"node":"w","seqs":[]}'
        settle = [request("POST", f"/v0/topics/q/{verb}", empty, key=key) for verb in SETTLE]
        await server.talk(line, made, append(key=key), claim(key=key), *settle)
        await scenario(server, line)
        line.hang_up()
        assert server.runtime.service.memory.used == 0
        assert not server.runtime.service.inflight
        await server.stop()

    asyncio.run(main())


SETTLE = ("ack", "nack", "reject", "extend")


def seqs(replies: bytes, of: bytes = b'"first_seq":') -> list[int]:
    """A number of each reply that has it."""
    return [int(found) for found in re.findall(of + b"([0-9]+)", replies)]


def test_pipelined_writes_share_a_sync_and_a_write() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        before, writes = server.syncs, line.writes
        replies = await server.talk(line, append() * 64)
        assert statuses(replies) == [200] * 64
        assert seqs(replies) == [*range(2, 66)]
        assert server.syncs == before + 1
        assert line.writes == writes + 1

    run(scenario)


def test_a_request_observes_those_before_it() -> None:
    """As if each had been sent behind the reply of the one before."""

    async def scenario(server: Stepped, line: Line) -> None:
        ack = request("POST", "/v0/topics/q/ack", b'{"node":"w","seqs":[2]}')
        state = request("GET", "/v0/topics/q")
        drop = request("DELETE", "/v0/topics/q")
        packet = append() + claim() + ack + claim() + append() + claim() + state + drop + claim()
        replies = await server.talk(line, packet)
        assert statuses(replies) == [200] * 8 + [404]
        assert seqs(replies, rb'"\$seq":') == [2, 3]
        assert seqs(replies, rb'"acked":')[0] == 1
        assert seqs(replies, rb'"in_flight":')[-1] == 2

    run(scenario)


def test_a_refusal_waits_for_the_replies_before_it() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        bad = append(data=b"!")
        line.send(append() + bad + append() + bad)
        await turns()
        assert not line.read()
        await server.rest()
        assert statuses(line.read()) == [200, 400, 200, 400]

    run(scenario)


def test_unknown_heads_wait_for_all_before_them() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        once = append().replace(b"host:", b"x: once\r\nhost:")
        line.send(append() * 2 + once + append())
        await turns()
        assert begun(line) == 2
        await server.rest()
        assert statuses(line.read()) == [200] * 4

    run(scenario)


def test_one_connection_has_so_many_in_progress() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append() * 1000)
        await turns()
        assert begun(line) == PIPELINED_MAX
        await server.rest()
        assert statuses(line.read()) == [200] * 1000

    run(scenario)


def is_taken(line: Line) -> bool:
    """Whether the server wants more bytes."""
    return line.wants_more


def test_what_waits_behind_them_is_bounded() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        body = append(data=b'"%b"' % (b"x" * 1000))
        sent = 0
        while is_taken(line):
            line.send(body * 10)
            await turns(1)
            sent += 10
        assert sent * len(body) < BACKLOG_BYTES_MAX + (PIPELINED_MAX + 20) * len(body)
        await server.rest()
        assert is_taken(line)
        assert statuses(line.read()) == [200] * sent

    run(scenario)


def test_they_are_in_the_books_of_memory() -> None:
    """And without room for them they are taken one by one."""

    async def scenario(server: Stepped, line: Line) -> None:
        memory = server.runtime.service.memory
        line.send(append() * 32)
        await turns()
        assert memory.used > 32 << 10
        await server.rest()
        assert memory.used == 0
        memory.add("", memory._bytes_max - 60_000)
        line.send(append() * 32 * 3)
        await turns()
        assert begun(line) <= 64
        await server.rest()
        assert statuses(line.read()) == [200] * 32 * 4
        memory.add("", -memory.used)

    run(scenario)


def test_without_memory_for_the_rest_of_a_body_it_is_refused() -> None:
    """Instead of waiting for bytes that were thrown away."""

    async def scenario(server: Stepped, line: Line) -> None:
        memory = server.runtime.service.memory
        memory.add("", memory._bytes_max - 1000)
        head = request("POST", "/v0/topics/q", b"", b"content-type: application/json",
                       b"transfer-encoding: chunked")  # fmt: skip
        assert statuses(await server.talk(line, head + b"1\r\n1\r\n" * 3000)) == [429]
        line.hang_up()
        memory.add("", -memory.used)

    run(scenario)


def test_replies_wait_for_their_reader() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        await server.talk(line, *[append(data=b'"%b"' % (b"x" * 50_000))] * 20)
        line.is_read = False
        line.send(claim() * 20)
        await server.rest()
        assert len(line.written) < 4 * 64 << 10
        assert begun(line)
        replies = b""
        for _ in range(30):
            replies += line.read()
            line.is_read = False
            await server.rest()
        assert statuses(replies) == [200] * 20
        assert seqs(replies, rb'"\$seq":') == [*range(2, 22)]

    run(scenario)


@pytest.mark.parametrize("is_synced", [False, True])
def test_jobs_of_claims_whose_client_has_gone_go_back(is_synced: bool) -> None:
    """Whether their replies wait for the log, or for the write that takes them all."""

    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append() * 8 + claim() * 8)
        await turns()
        assert begun(line) == 16
        if is_synced:
            server.runtime.engine.journal.jobs.step()
            server.dispatcher.barrier._open()
        line.hang_up()
        await server.rest()
        assert not line.written
        again = server.connect()
        replies = await server.talk(again, claim(node="v") * 8)
        assert seqs(replies, rb'"\$seq":') == [*range(2, 10)]
        again.hang_up()

    run(scenario)


def test_a_key_has_one_request_in_progress_for_each_connection() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append(key="k") * 20)
        await turns()
        assert server.runtime.service.inflight == {_id(server): 1}
        other = server.connect()
        assert statuses(await _reply(server, other, append(key="k"))) == [429]
        await server.rest()
        assert statuses(line.read()) == [200] * 20
        assert statuses(await server.talk(other, append(key="k"))) == [200]
        other.hang_up()

    run(scenario, keys="k", max_inflight_per_key=1)


async def _reply(server: Stepped, line: Line, packet: bytes) -> bytes:
    line.send(packet)
    await turns()
    return line.read()


def _id(server: Stepped) -> str:
    (key,) = server.runtime.service.keys.keys
    return key.id


def test_requests_behind_a_refusal_count_for_their_own_key() -> None:
    """The refused one was counted for another key, and no longer is."""

    async def scenario(server: Stepped, line: Line) -> None:
        other = server.connect()
        other.send(append(key="k"))
        await turns()
        line.send(append(key="r") + append(key="k") + append(key="r"))
        await turns()
        assert begun(line) == 0
        assert statuses(line.read()) == [403, 429, 403]
        await server.rest()
        assert statuses(other.read()) == [200]
        assert statuses(await server.talk(line, append(key="k"))) == [200]
        other.hang_up()

    run(scenario, keys="k:rw+admin,r:read", max_inflight_per_key=1)


def test_requests_with_different_keys_do_not_overlap() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        await server.talk(line, append(key="other"))
        line.send(append(key="k") + append(key="other") + append(key="k"))
        await turns()
        assert begun(line) == 1
        await server.rest()
        assert statuses(line.read()) == [200] * 3

    run(scenario, keys="k,other")


def test_clients_that_send_ahead_begin_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So whatever must be decided at once is short. All of it is decided in the end,
    and replies share the log as before."""
    monkeypatch.setattr(turn, "AHEAD_COST_MAX", 8)

    async def scenario(server: Stepped, line: Line) -> None:
        lines = [line, server.connect(), server.connect()]
        waiting = server.dispatcher.turn
        sizes: list[int] = []
        decide = waiting.run

        def run_counted() -> None:
            sizes.append(sum(len(group) for group in waiting._groups.values()))
            decide()

        vars(waiting)["run"] = run_counted
        syncs = server.syncs
        for one in lines:
            one.send((append() * 20 + claim()) * 2)
        await turns(100)
        assert [begun(one) for one in lines] == [42, 42, 42]
        await server.rest()
        assert [statuses(one.read()) for one in lines] == [[200] * 42] * 3
        # Each costs two; and each connection may have begun one in any case.
        assert sizes
        assert max(sizes) <= 8 // 2 + len(lines)
        assert server.syncs == syncs + 1
        for one in lines[1:]:
            one.hang_up()

    run(scenario)


def test_a_step_takes_requests_of_a_bounded_length() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append(data=b'"%b"' % (b"x" * (BYTES_PER_STEP // 4))) * 12)
        assert begun(line) == 4
        await turns()
        assert begun(line) == 12
        await server.rest()
        assert statuses(line.read()) == [200] * 12

    run(scenario)


def test_nothing_follows_a_claim_that_waits() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        await server.talk(line, request("POST", "/v0/topics/q/claim", b'{"node":"w","max":9}'))
        waits = request("POST", "/v0/topics/q/claim", b'{"node":"w","max":1,"wait_ms":20000}')
        line.send(append() + claim() + waits + append())
        await server.rest()
        assert statuses(line.read()) == [200, 200]
        other = server.connect()
        await server.talk(other, append())
        assert statuses(line.read()) == [200, 200]
        other.hang_up()

    run(scenario)


def test_a_half_closed_client_gets_all_its_replies() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append() * 300)
        await turns()
        protocol: Any = line._protocol
        assert protocol.eof_received()
        await server.rest()
        assert statuses(line.read()) == [200] * 300
        assert line.is_closed

    run(scenario)


def test_a_half_closed_client_gets_the_replies_to_what_waits() -> None:
    """Also when those before it have theirs at once."""

    async def scenario(server: Stepped, line: Line) -> None:
        nack = request("POST", "/v0/topics/q/nack", b'{"node":"w","seqs":[]}')
        line.send(nack + request("GET", "/v0/topics/q", b"", b"x: once"))
        protocol: Any = line._protocol
        assert protocol.eof_received()
        await server.rest()
        assert statuses(line.read()) == [200] * 2
        assert line.is_closed

    run(scenario)


def test_a_config_is_for_those_who_may_create_the_topic() -> None:
    """Which an earlier request in the same packet has created."""

    async def scenario(server: Stepped, line: Line) -> None:
        body = b'{"records":[{"data":1}],"config":{"type":"log"}}'
        configured = request("POST", "/v0/topics/new", body, key="w")
        assert statuses(await server.talk(line, configured)) == [403]
        server.runtime.service.change_keys(server.runtime.service.keys)
        line.send(append("new", key="w") + configured)
        await server.rest()
        assert statuses(line.read()) == [201, 200]

    run(scenario, keys="k,w:write")


def test_a_reply_that_cannot_be_made_breaks_the_connection_off() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        finish, calls = server.api.finish, []

        def fail(*args: Any) -> Any:
            calls.append(args)
            if len(calls) == 2:
                raise RuntimeError("a fault in the server")
            return finish(*args)

        vars(server.api)["finish"] = fail
        line.send(append() * 3)
        await server.rest()
        assert line.is_aborted and line.is_closed
        del vars(server.api)["finish"]
        other = server.connect()
        assert statuses(await server.talk(other, append() * 3)) == [200] * 3
        other.hang_up()

    run(scenario)


def test_the_last_reply_of_a_connection_says_so() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        last = append().replace(b"host:", b"connection: close\r\nhost:")
        replies = await server.talk(line, append() * 3 + last + append() * 3)
        assert statuses(replies) == [200] * 4
        assert replies.count(b"connection: close") == 1

    run(scenario)


def test_a_server_that_stops_answers_what_it_has_begun() -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        line.send(append() * 5)
        await turns()
        protocol: Any = line._protocol
        protocol.shutdown()
        line.send(append())
        await server.rest()
        replies = line.read()
        assert statuses(replies) == [200] * 5
        assert replies.count(b"connection: close") == 1

    run(scenario)


def test_a_packet_that_ends_inside_a_request() -> None:
    """The rest of it comes while those before wait for the log."""

    async def scenario(server: Stepped, line: Line) -> None:
        content = append() * 4
        for at in (len(append()) * 2 + 30, len(content) - 3):
            line.send(content[:at])
            await turns()
            first = begun(line)
            line.send(content[at:])
            await turns()
            assert (first, begun(line)) == (at // len(append()), 4)
            await server.rest()
            assert statuses(line.read()) == [200] * 4

    run(scenario)


@pytest.mark.parametrize("depth", [1, 16])
def test_no_request_is_work_for_the_garbage_collector(depth: int) -> None:
    async def scenario(server: Stepped, line: Line) -> None:
        packet = append() * depth + claim() * depth
        await server.talk(line, packet)
        gc.collect()
        gc.disable()
        try:
            line.send(packet * 10)
            await server.rest()
            assert gc.collect() == 0
        finally:
            gc.enable()
        assert statuses(line.read()) == [200] * depth * 20

    run(scenario)


def command(chance: random.Random) -> bytes:
    """Any request that may be pipelined, and now and then one that may not."""
    seqs = b"%d,%d" % (chance.randrange(1, 40), chance.randrange(1, 40))
    settle = b'{"node":"w","seqs":[%b]}' % seqs
    topic = chance.choice(("q", "q", "jitter", "archived"))
    verb = chance.choice(SETTLE)
    waits = b'{"node":"w","max":1,"wait_ms":20}'
    return chance.choice(
        (
            append(topic),
            append(topic),
            append(topic, b"!"),
            claim(topic),
            claim(topic, "v"),
            request("POST", f"/v0/topics/{topic}/{verb}", settle),
            request("POST", f"/v0/topics/{topic}/ack", settle),
            request("POST", f"/v0/topics/{topic}/claim", waits),
            request("POST", f"/v0/topics/{topic}/diff", b'{"from_seq":0}'),
            request("GET", f"/v0/topics/{topic}"),
            request("PATCH", f"/v0/topics/{topic}", b'{"max_in_flight":%d}' % chance.randrange(9)),
        )
    )


@pytest.mark.parametrize("seed", range(scaled(short=4, thorough=60)))
def test_replies_are_those_to_requests_one_by_one(seed: int) -> None:
    """However the bytes are cut into packets."""
    chance = random.Random(seed)
    requests = [command(chance) for _ in range(150)]
    topics = [
        request("PUT", f"/v0/topics/{name}", config)
        for name, config in (
            ("q", QUEUE),
            ("jitter", b'{"type":"queue","claim_jitter_ms":1}'),
            ("archived", b'{"type":"queue","archive":"q"}'),
        )
    ]

    async def answers(packets: list[bytes]) -> bytes:
        server = Stepped()
        line = server.connect()
        await server.talk(line, *topics)
        found = b""
        for count, sent in ((len(warm), warm), (len(warm) + len(requests), packets)):
            for packet in sent:
                line.send(packet)
                await server.rest()
            while len(statuses(found)) < count:
                await asyncio.sleep(0.001)
                await server.rest()
                found += line.read()
        line.hang_up()
        assert server.runtime.service.memory.used == 0
        await server.stop()
        return steady(found)

    warm = [one for name in ("q", "jitter", "archived") for one in (append(name), claim(name))]
    content = b"".join(requests)
    cuts = sorted(chance.randrange(len(content)) for _ in range(6))
    together = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert in_virtual_time(answers(together)) == in_virtual_time(answers(requests))


def in_virtual_time(work: Coroutine[Any, Any, bytes]) -> bytes:
    """Run something that waits, without waiting."""
    time = VirtualTime()
    loop = VirtualLoop(time)

    def move(timeout: float | None) -> bool:
        time.move_to(time.now() + (timeout or 0.0))
        return timeout is None

    loop.ask_before_sleep(move)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
