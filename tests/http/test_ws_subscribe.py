"""Subscriptions over a WebSocket: replies, deliveries, projection, gaps, deleted topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.api import Api, numbered
from tests.http.expect import Json, eventually, ok
from tests.http.ws import Socket, data_of, kinds, of_kind, records_of, seqs_of

RECORD_KEYS = {"op", "topic", "from_seq", "to_seq", "head_seq", "records"}


@pytest.fixture
def ws(api: Api) -> Iterator[Socket]:
    """A socket to the shared server."""
    with Socket(api.address) as opened:
        yield opened


# -- the reply ----------------------------------------------------------------------------------


def test_the_reply(api: Api, ws: Socket, log: str) -> None:
    """Where the topic begins; it comes before any delivery."""
    api.append(log, 1, 2, 3)
    request_id = ws.post("subscribe", topic=log, from_seq=1)
    first = ws.next_message()
    assert first == {
        "op": "subscribed",
        "request_id": request_id,
        "topics": {log: {"from_seq": 1, "head_seq": 3, "earliest_seq": 1}},
    }
    assert seqs_of(ws.drain()) == [2, 3]


@pytest.mark.parametrize(
    "request_id", [0, -1, 1.5, "", "text", None, True, [1, {"a": None}], {"b": []}, 2**53], ids=str
)
def test_request_ids(ws: Socket, log: str, request_id: object) -> None:
    """Any JSON value comes back as it was."""
    for op, answer in (("ping", "pong"), ("subscribe", "subscribed"), ("unsubscribe", None)):
        reply = ws.call(op, topic=log, request_id=request_id)
        assert reply["op"] == (answer or "unsubscribed")
        assert type(reply["request_id"]) is type(request_id)


def test_no_request_id(ws: Socket, log: str) -> None:
    """null in the reply."""
    ws.send({"op": "ping"})
    assert ws.next_message() == {"op": "pong", "request_id": None}
    ws.send({"op": "subscribe", "topic": log})
    assert ws.next_message()["request_id"] is None
    ws.send({"op": "publish", "topic": log, "records": [{"data": 1}]})
    assert ws.reply_to(None)["op"] == "ack"
    ws.send({"op": "unsubscribe", "topic": log})
    assert ws.reply_to(None) == {"op": "unsubscribed", "request_id": None, "topics": [log]}


@pytest.mark.parametrize(
    ("options", "from_seq"),
    [
        ({}, 0),
        ({"from_seq": 2}, 2),
        ({"from_seq": 9}, 9),
        ({"from_seq": 2**64 - 1}, 2**64 - 1),
        ({"tail": True}, 3),
        ({"from_seq": 1, "tail": True}, 3),  # case 87
        ({"from_seq": 1, "tail": False}, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["topic", "topics"])
def test_where_it_begins(
    api: Api, ws: Socket, log: str, form: str, options: Json, from_seq: int
) -> None:
    """Case 87: in both forms."""
    api.append(log, 1, 2, 3)
    found = ws.subscribe(log, **options) if form == "topic" else ws.subscribe(topics={log: options})
    assert found == {log: {"from_seq": from_seq, "head_seq": 3, "earliest_seq": 1}}


def test_topic_and_topics(api: Api, ws: Socket, topic: str) -> None:
    """Both at once; from_seq and tail are those of topic; an entry of that name in topics wins."""
    names = [f"{topic}{letter}" for letter in "abc"]
    for name in names:
        api.make_log(name)
        api.append(name, *range(4))
    first, second, third = names
    topics = {second: {"from_seq": 3}, third: {}}
    found = ws.subscribe(first, tail=True, topics=topics)
    assert {name: entry["from_seq"] for name, entry in found.items()} == {
        first: 4,
        second: 3,
        third: 0,
    }
    found = ws.subscribe(first, from_seq=1, topics={first: {"from_seq": 2}})
    assert {name: entry["from_seq"] for name, entry in found.items()} == {first: 2}
    assert ws.subscribe(None, topics={first: {}}).keys() == {first}
    assert ws.call("subscribe", topic=None, topics={first: {}})["op"] == "subscribed"


# -- deliveries ---------------------------------------------------------------------------------


def test_deliveries(api: Api, ws: Socket, log: str) -> None:
    """Records as in a diff, then caught_up; ids and events are not sent."""
    api.append_many(log, [{"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": 1}}])
    api.append(log, None)
    ws.subscribe(log)
    found = ws.drain()
    assert kinds(found) == ["record", "caught_up"]
    assert all(set(message) == RECORD_KEYS for message in of_kind(found, "record"))
    assert records_of(found) == api.read(log)
    assert (found[0]["topic"], found[0]["from_seq"], found[0]["head_seq"]) == (log, 0, 2)
    assert found[-2]["to_seq"] == 2
    assert found[-1] == {"op": "caught_up", "topic": log, "head_seq": 2}


def test_nothing_pending(ws: Socket, log: str) -> None:
    """caught_up at once."""
    ws.subscribe(log)
    assert ws.delivery() == {"op": "caught_up", "topic": log, "head_seq": 0}


def test_live_records(api: Api, ws: Socket, log: str) -> None:
    """Each new record, then another caught_up."""
    ws.subscribe(log)
    ws.drain()
    for number in range(1, 4):
        api.append(log, number)
        record, caught_up = ws.drain()
        place = (record["from_seq"], record["to_seq"], record["head_seq"])
        assert (data_of([record]), place) == ([number], (number - 1, number, number))
        assert caught_up["head_seq"] == number


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, ["$seq", "$ts", "$node", "data", "meta"]),
        ({"include_tags": True}, ["$seq", "$ts", "$node", "$tag", "data", "meta"]),
        ({"include_meta": False}, ["$seq", "$ts", "$node", "data"]),
        ({"include_data": False}, ["$seq", "$ts", "$node", "meta"]),
    ],
    ids=str,
)
def test_projection(api: Api, ws: Socket, log: str, fields: Json, keys: list[str]) -> None:
    """Tags on demand, data and meta unless declined."""
    api.append_many(log, [{"data": 1, "tag": "t", "node": "n", "meta": {}}, {"data": 2}])
    ws.subscribe(log, **fields)
    first, second = records_of(ws.drain())
    assert set(first) == {*keys}
    assert set(second) == {*keys} & {"$seq", "$ts", "data"}


@pytest.mark.parametrize(
    ("node", "delivered"),
    [(None, [1, 2, 3]), ([], [1, 2, 3]), ("a", [2, 3]), (["a", "b"], [3])],
    ids=str,
)
def test_the_node_filter(
    api: Api, ws: Socket, log: str, node: object, delivered: list[int]
) -> None:
    """Own records are passed over."""
    api.append_many(log, [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}])
    ws.subscribe(log, node=node)
    found = ws.drain()
    assert seqs_of(found) == delivered
    assert found[-1]["head_seq"] == 3


@pytest.mark.parametrize(
    ("fields", "largest"),
    [
        ({}, 1000),
        ({"limit": 0}, 256),
        ({"limit": 1}, 1),
        ({"limit": 7}, 7),
        ({"limit": 2**32 - 1}, 1000),
        ({"max_batch_bytes": 1}, 1),
        ({"max_batch_bytes": 0}, 1000),
    ],
    ids=str,
)
def test_records_per_message(api: Api, ws: Socket, log: str, fields: Json, largest: int) -> None:
    """1000 by default; messages join without a hole."""
    total = 1100 if largest > 7 else 30
    ok(api.write(log, numbered(total), query="?return_seqs=false"))
    ws.subscribe(log, **fields)
    found = of_kind(ws.drain(), "record")
    assert max(len(message["records"]) for message in found) == largest
    assert seqs_of(found) == list(range(1, total + 1))
    joints = [message["from_seq"] for message in found]
    assert joints == [0, *(message["to_seq"] for message in found[:-1])]


def test_bytes_per_message(api: Api, ws: Socket, log: str) -> None:
    """1 MiB by default; a record larger than the budget comes alone."""
    api.append(log, *["x" * 400_000] * 5)
    ws.subscribe(log)
    assert [len(message["records"]) for message in of_kind(ws.drain(), "record")] == [2, 2, 1]
    ws.subscribe(log, max_batch_bytes=100_000)
    assert [len(message["records"]) for message in of_kind(ws.drain(), "record")] == [1] * 5
    ok(api.delete_topic(log))


def test_several_topics(api: Api, ws: Socket, topic: str) -> None:
    """Each in its own order."""
    names = [f"{topic}{letter}" for letter in "abc"]
    for name in names:
        api.make_log(name)
        api.append(name, "first")
    found = ws.subscribe(topics={name: {} for name in names})
    assert set(found) == set(names)
    ws.drain(3)
    for number in range(30):
        api.append(names[number % 3], number)
    messages = ws.receive(30)
    for place, name in enumerate(names):
        assert data_of(messages, name) == list(range(place, 30, 3))


def test_subscriptions_add_up(api: Api, ws: Socket, topic: str) -> None:
    """One command does not end the topics of another; each keeps its own options."""
    first, second = f"{topic}a", f"{topic}b"
    for name in (first, second):
        api.make_log(name)
    ws.subscribe(first, include_data=False)
    ws.subscribe(second, include_tags=True)
    ws.drain(2)
    for name in (first, second):
        api.append_many(name, [{"data": 1, "tag": "t"}])
    messages = ws.receive(2)
    assert set(records_of(messages, first)[0]) == {"$seq", "$ts"}
    assert set(records_of(messages, second)[0]) == {"$seq", "$ts", "$tag", "data"}


def test_resubscribing(api: Api, ws: Socket, log: str) -> None:
    """Case 104: a lower from_seq delivers again from there; the options are the new ones."""
    api.append(log, *range(5))
    ws.subscribe(log, include_tags=True, node="me", limit=1)
    assert seqs_of(ws.drain()) == [1, 2, 3, 4, 5]
    ws.subscribe(log, from_seq=2)
    assert seqs_of(ws.drain()) == [3, 4, 5]
    api.append_many(log, [{"data": 1, "tag": "t", "node": "me"}, {"data": 2}])
    messages = ws.drain()
    assert seqs_of(messages) == [6, 7]
    assert len(messages) == 2
    assert "$tag" not in records_of(messages)[0]
    ws.subscribe(log, tail=True)
    assert kinds(ws.drain()) == ["caught_up"]


def test_a_resubscription_forgets_the_old_cursor(api: Api, ws: Socket, log: str) -> None:
    """Case 104: also forward; nothing in between comes."""
    api.append(log, *range(5))
    ws.subscribe(log, tail=True)
    ws.drain()
    ws.subscribe(log, from_seq=4)
    assert seqs_of(ws.drain()) == [5]


# -- unsubscribing ------------------------------------------------------------------------------


def test_unsubscribing(api: Api, ws: Socket, topic: str) -> None:
    """Nothing of that topic comes any more; others go on."""
    first, second = f"{topic}a", f"{topic}b"
    for name in (first, second):
        api.make_log(name)
    ws.subscribe(topics={first: {}, second: {}})
    ws.drain(2)
    reply = ws.call("unsubscribe", topic=first)
    assert (reply["op"], reply["topics"]) == ("unsubscribed", [first])
    api.append(first, 1)
    api.append(second, 2)
    assert data_of(ws.receive(1)) == [2]
    assert ws.delivery()["op"] == "caught_up"
    assert ws.quiet(0.2)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"topic": "no-such"}, ["no-such"]),
        ({"topics": ["no-such", "-bad", ""]}, ["no-such", "-bad", ""]),
        ({"topics": ["b", "a"]}, ["b", "a"]),
        ({"topic": None, "topics": ["a"]}, ["a"]),
    ],
    ids=str,
)
def test_unsubscribing_what_is_unknown(ws: Socket, fields: Json, names: list[str]) -> None:
    """Case 103: answered with the names as asked."""
    reply = ws.call("unsubscribe", **fields)
    assert set(reply) == {"op", "request_id", "topics"}
    assert (reply["op"], reply["topics"]) == ("unsubscribed", names)


def test_unsubscribing_in_both_forms(api: Api, ws: Socket, topic: str) -> None:
    """topic and topics together."""
    names = {f"{topic}{letter}" for letter in "abc"}
    for name in names:
        api.make_log(name)
    ws.subscribe(topics={name: {} for name in names})
    ws.drain(3)
    first, *rest = sorted(names)
    reply = ws.call("unsubscribe", topic=first, topics=rest)
    assert set(reply["topics"]) == names
    for name in names:
        api.append(name, 1)
    assert ws.quiet(0.2)


def test_coming_back_after_unsubscribing(api: Api, ws: Socket, log: str) -> None:
    """The cursor is the client's: from_seq as given."""
    ws.subscribe(log)
    ws.drain()
    api.append(log, 1)
    ws.drain()
    ws.unsubscribe(log)
    api.append(log, 2)
    ws.subscribe(log, from_seq=1)
    assert seqs_of(ws.receive(1)) == [2]


# -- lenient ------------------------------------------------------------------------------------


def test_lenient(api: Api, ws: Socket, log: str) -> None:
    """Unknown topics are dropped, possibly all."""
    assert set(ws.subscribe(topics={log: {}, f"{log}no": {}}, lenient=True)) == {log}
    assert ws.subscribe(f"{log}no", lenient=True) == {}
    assert ws.subscribe(topics={f"{log}no": {}}, lenient=True) == {}
    ws.drain()
    ok(api.write(f"{log}no", numbered(1)), 201)
    assert ws.quiet(0.2), "a dropped topic is not subscribed"


# -- gaps and deleted topics --------------------------------------------------------------------


def test_gaps(api: Api, ws: Socket, topic: str) -> None:
    """Always the true reason, from the first tombstone on; before the records that follow."""
    api.make_log(topic, cap_records=3)
    api.append(topic, *range(10))
    ws.subscribe(topic)
    found = ws.drain()
    assert kinds(found) == ["tombstone", "record", "caught_up"]
    assert found[0] == {
        "op": "tombstone",
        "topic": topic,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert seqs_of(found) == [8, 9, 10]
    api.append(topic, *range(10))
    gap = ws.drain()[0]
    assert (gap["op"], gap["reason"], gap["gap_from"], gap["gap_to"]) == (
        "tombstone",
        "cap",
        11,
        17,
    )


def test_expired_records(api: Api, ws: Socket, log: str) -> None:
    """Case 69: reason ttl, no records, caught up."""
    api.append(log, 1, 2)
    ok(api.put(log, durability="memory", ttl_ms=1))
    assert eventually(lambda: api.facts(log, "count") == (0,))
    ws.subscribe(log)
    gap, caught_up = ws.drain()
    assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("ttl", 1, 2)
    assert caught_up["head_seq"] == 2


@pytest.mark.parametrize("from_seq", [4, 99, 2**64 - 1])
def test_a_cursor_ahead_of_the_head(api: Api, ws: Socket, log: str, from_seq: int) -> None:
    """Cases 66, 67: recreated, then everything from the earliest."""
    api.append(log, *"abc")
    ws.subscribe(log, from_seq=from_seq)
    found = ws.drain()
    assert kinds(found) == ["tombstone", "record", "caught_up"]
    gap = found[0]
    assert (gap["reason"], gap["gap_from"], gap["gap_to"]) == ("recreated", 1, 3)
    assert seqs_of(found) == [1, 2, 3]


def test_a_deleted_topic(api: Api, ws: Socket, topic: str) -> None:
    """Case 96: a last message for it, at once; other topics and the socket go on."""
    gone, other = f"{topic}a", f"{topic}b"
    for name in (gone, other):
        api.make_log(name)
    ws.subscribe(topics={gone: {}, other: {}})
    ws.drain(2)
    ok(api.delete_topic(gone))
    last: Json = {"op": "topic_deleted", "topic": gone, "head_seq": 0, "reason": "deleted"}
    assert ws.delivery() == last
    api.append(other, 1)
    assert seqs_of(ws.drain(), other) == [1]
    ok(api.delete_topic(other))
    assert ws.delivery() == {**last, "topic": other}
    assert ws.call("ping")["op"] == "pong"


def test_a_topic_that_comes_back(api: Api, ws: Socket, log: str) -> None:
    """It stays silent until it is subscribed to again."""
    api.append(log, 1)
    ws.subscribe(log)
    ws.drain()
    ok(api.delete_topic(log))
    assert ws.delivery()["op"] == "topic_deleted"
    api.make_log(log)
    api.append(log, "new life")
    assert ws.quiet(0.2)
    assert ws.subscribe(log) == {log: {"from_seq": 0, "head_seq": 1, "earliest_seq": 1}}
    assert data_of(ws.drain()) == ["new life"]


# -- many ---------------------------------------------------------------------------------------


def test_many_sockets(api: Api, log: str) -> None:
    """All of them hear everything."""
    sockets = [Socket(api.address) for _ in range(10)]
    try:
        for each in sockets:
            each.subscribe(log)
        api.append(log, *range(20))
        for each in sockets:
            assert seqs_of(each.receive(20)) == list(range(1, 21))
    finally:
        for each in sockets:
            each.close()


def test_a_slow_reader_slows_only_itself(api: Api, log: str) -> None:
    """The others get everything meanwhile; it finds everything when it reads again."""
    with Socket(api.address) as lazy, Socket(api.address) as eager:
        lazy.subscribe(log)
        eager.subscribe(log)
        for _ in range(4):
            api.append(log, *["x" * 500_000] * 5)
        for each in (eager, lazy):
            assert seqs_of(each.receive(20)) == list(range(1, 21))
    ok(api.delete_topic(log))


def test_jobs_and_dead_letters(api: Api, ws: Socket, queue: str) -> None:
    """A queue is a topic: leased jobs are shown, acked ones passed over."""
    api.append(queue, 1, 2, 3)
    api.claimed(queue, max=2)
    ok(api.ack(queue, [1]))
    ws.subscribe(queue)
    found = ws.drain()
    assert (kinds(found), seqs_of(found)) == (["record", "caught_up"], [2, 3])
    assert api.facts(queue, "in_flight") == (1,)
