"""Watch streams: frames, order, projection, budgets, gaps, deleted topics, heartbeats."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess
from tests.http.sse import Stream
from tests.http.watching import (
    bodies,
    cursors_in,
    data_in,
    drain,
    kinds,
    receive,
    records_in,
    refusal,
    seqs_in,
)

RECORD_KEYS = {"topic", "records", "from_seq", "to_seq", "head_seq"}
TOMBSTONE_KEYS = {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with a low floor for heartbeats."""
    directory = tmp_path_factory.mktemp("fast") / "data"
    process = ServerProcess(directory, settings={"TEST_MIN_HEARTBEAT_MS": "50"}).start()
    with Api(process.base_url) as client:
        yield client
    process.stop()


# -- opening ------------------------------------------------------------------------------------


def test_the_opening(api: Api, log: str) -> None:
    """Headers of an event stream; retry: 2000 first; nothing pending is caught up at once."""
    with api.watch(log) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].partition(";")[0] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.next_frame().retry == "2000"
        [frame] = drain(stream)
        assert frame.json() == {"topic": log, "head_seq": 0}
        assert cursors_in(frame) == {log: 0}


@pytest.mark.parametrize(
    ("accept", "opened"),
    [
        (None, True),
        ("", True),
        ("text/event-stream", True),
        ("*/*", True),
        ("text/html, text/event-stream;q=0.5", True),
        ("text/html, */*;q=0.1", True),
        ("text/*", False),
        ("application/json", False),
        ("text/html", False),
    ],
)
def test_accept(api: Api, log: str, accept: str | None, opened: bool) -> None:
    """Case 91: absent, empty, event-stream or anything; else 406, before the session is sought."""
    headers = {} if accept is None else {"accept": accept}
    for wid, found in ((ok(api.create_watch({log: {}}))["wid"], True), ("wid_no", False)):
        with rawhttp.Connection(api.address) as connection:
            connection.send(rawhttp.head("GET", f"/v0/watch/{wid}", headers))
            if not opened:
                refused(connection.read_reply(), 406, "not_acceptable", None)
            elif not found:
                refused(connection.read_reply(), 404, "not_found", None)
            else:
                status, answered = connection.read_head(time.monotonic() + 5.0)
                assert (status, answered["content-type"][:17]) == (200, "text/event-stream")


@pytest.mark.parametrize("wid", ["x", "wid_", "wid_" + "A" * 22, "wid_%2F", "%C3%A9", "w" * 3000])
def test_unknown_sessions(api: Api, wid: str) -> None:
    """404."""
    refused(refusal(api, wid), 404, "not_found", None)


def test_a_body_is_ignored(api: Api, log: str) -> None:
    """Case 20: the stream opens all the same."""
    wid = ok(api.create_watch({log: {}}))["wid"]
    content = rawhttp.request("GET", f"/v0/watch/{wid}", b"{nonsense", JSON)
    with rawhttp.Connection(api.address) as connection:
        connection.send(content)
        assert connection.read_head(time.monotonic() + 5.0)[0] == 200


# -- records ------------------------------------------------------------------------------------


def test_record_frames(api: Api, log: str) -> None:
    """Id, event, one line of compact JSON; records as in a diff; then caught up."""
    api.append_many(log, [{"data": {"a": [1, 2]}, "tag": "t", "node": "n", "meta": {"m": 1}}])
    api.append(log, None)
    with api.watch(log) as stream:
        frames = drain(stream)
    assert kinds(frames) == ["record", "caught-up"]
    first, last = frames[0], frames[-1]
    assert first.data is not None
    assert '"$seq":1' in first.data
    assert '"data":{"a":[1,2]}' in first.data
    assert all(set(body) == RECORD_KEYS for body in bodies(frames, "record"))
    assert records_in(frames) == api.read(log)
    assert (first.json()["topic"], first.json()["from_seq"]) == (log, 0)
    assert [body["head_seq"] for body in bodies(frames, "record")] == [2] * (len(frames) - 1)
    assert last.json() == {"topic": log, "head_seq": 2}
    assert cursors_in(last) == {log: 2}


def test_the_lines_of_a_frame(api: Api, log: str) -> None:
    """Exactly id, event and data; no line break of a payload gets into the stream."""
    content = b'{"records":[{"data":{\r\n"a"\n:\n"b\\n\\nc\\u2028"\n}\n}]}'
    ok(api.send("POST", f"/v0/topics/{log}", content, JSON))
    with api.watch(log) as stream:
        frames = drain(stream)
    assert data_in(frames) == [{"a": "b\n\nc\u2028"}]
    for frame in frames:
        names = [line.partition(":")[0] for line in frame.text.split("\n")]
        assert sorted(names) == ["data", "event", "id"]


def test_live_records(api: Api, log: str) -> None:
    """Each new record gives a record frame and then another caught-up."""
    with api.watch(log) as stream:
        drain(stream)
        for number in range(1, 4):
            api.append(log, number)
            frames = drain(stream)
            assert kinds(frames) == ["record", "caught-up"]
            [body] = bodies(frames, "record")
            place = (body["from_seq"], body["to_seq"], body["head_seq"])
            assert (data_in(frames), place) == ([number], (number - 1, number, number))
            assert frames[-1].json()["head_seq"] == number
            assert cursors_in(frames[0]) == cursors_in(frames[-1]) == {log: number}


def test_starting_in_the_middle_and_at_the_end(api: Api, log: str) -> None:
    """Case 87: tail wins over from_seq, and only later records come."""
    api.append(log, *"abcd")
    for options, expected in (
        ({"from_seq": 2}, ["c", "d"]),
        ({"from_seq": 4}, []),
        ({"from_seq": 1, "tail": True}, []),
    ):
        wid = ok(api.create_watch({log: options}))["wid"]
        with api.open_watch(wid) as stream:
            assert data_in(drain(stream)) == expected


def test_tail_is_where_the_session_was_made(api: Api, log: str) -> None:
    """What comes between making and opening is delivered."""
    api.append(log, "before")
    wid = ok(api.create_watch({log: {"tail": True}}))["wid"]
    api.append(log, "between")
    with api.open_watch(wid) as stream:
        assert data_in(drain(stream)) == ["between"]


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, ["$seq", "$ts", "$node", "data", "meta"]),
        ({"include_tags": True}, ["$seq", "$ts", "$node", "$tag", "data", "meta"]),
        ({"include_meta": False}, ["$seq", "$ts", "$node", "data"]),
        ({"include_data": False}, ["$seq", "$ts", "$node", "meta"]),
        ({"include_data": False, "include_meta": False}, ["$seq", "$ts", "$node"]),
    ],
    ids=str,
)
def test_projection(api: Api, log: str, fields: Json, keys: list[str]) -> None:
    """Tags on demand, data and meta unless declined."""
    full = {"data": 1, "tag": "t", "node": "n", "meta": {}}
    api.append_many(log, [full, {"data": 2}])
    with api.watch(log, **fields) as stream:
        first, second = records_in(drain(stream))
    assert set(first) == {*keys}
    assert set(second) == {*keys} & {"$seq", "$ts", "data"}


@pytest.mark.parametrize(
    ("node", "delivered"),
    [
        (None, [1, 2, 3, 4, 5]),
        ([], [1, 2, 3, 4, 5]),
        ("a", [2, 3, 5]),
        (["a", "b", ""], [3]),
        ("A", [1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_the_node_filter(api: Api, log: str, node: object, delivered: list[int]) -> None:
    """Own records are passed over; the cursor passes them too."""
    nodes: list[str | None] = ["a", "b", None, "a", ""]
    api.append_many(log, [{"data": 1, "node": name} for name in nodes])
    with api.watch(log, node=node) as stream:
        frames = drain(stream)
        assert seqs_in(frames) == delivered
        assert cursors_in(frames[-1]) == {log: 5}
        assert frames[-1].json()["head_seq"] == 5


def test_the_filter_can_be_switched_off(api: Api, topic: str) -> None:
    """Case 74: a topic with dedupe_node false."""
    api.make_log(topic, dedupe_node=False)
    api.append_many(topic, [{"data": 1, "node": "a"}])
    with api.watch(topic, node="a") as stream:
        assert seqs_in(drain(stream)) == [1]


def test_a_pass_over_own_records_makes_no_record_frame(api: Api, log: str) -> None:
    """The next frame's from_seq may lie above them, its to_seq never below its last seq."""
    with api.watch(log, node="me") as stream:
        drain(stream)
        api.append_many(log, [{"data": 1, "node": "me"}] * 3)
        api.append_many(log, [{"data": 2, "node": "you"}, {"data": 3, "node": "me"}])
        frames = receive(stream, 1)
        [body] = bodies(frames, "record")
        assert seqs_of(body["records"]) == [4]
        assert body["from_seq"] in (0, 3)
        assert body["to_seq"] in (4, 5)


def test_deleted_records_are_passed_over_silently(api: Api, log: str) -> None:
    """No tombstone, no empty record frame."""
    api.append(log, *range(6))
    ok(api.delete(log, before_seq=3))
    api.append_many(log, [{"data": "x", "tag": "t"}])
    ok(api.delete(log, match="t"))
    with api.watch(log) as stream:
        frames = drain(stream)
    assert kinds(frames) == ["record", "caught-up"]
    assert seqs_in(frames) == [3, 4, 5, 6]
    assert cursors_in(frames[-1]) == {log: 7}


# -- budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "largest"),
    [
        ({}, 256),
        ({"limit": 0}, 256),
        ({"limit": 1}, 1),
        ({"limit": 100}, 100),
        ({"limit": 1001}, 1000),
        ({"limit": 2**32 - 1}, 1000),
        ({"max_batch_bytes": 1}, 1),
    ],
    ids=str,
)
def test_records_per_frame(api: Api, log: str, fields: Json, largest: int) -> None:
    """At most limit records, at least one; frames join without a hole."""
    total = 1100 if largest > 100 else 12 if largest == 1 else 250
    ok(api.write(log, numbered(total), query="?return_seqs=false"))
    with api.watch(log, **fields) as stream:
        frames = drain(stream)
    found = bodies(frames, "record")
    sizes = [len(body["records"]) for body in found]
    assert max(sizes) == largest
    assert seqs_in(frames) == list(range(1, total + 1))
    assert [body["from_seq"] for body in found] == [0, *(body["to_seq"] for body in found[:-1])]
    assert [cursors_in(frame)[log] for frame in frames[:-1]] == [body["to_seq"] for body in found]


@pytest.mark.parametrize(
    ("budget", "sizes"),
    [
        (None, [2, 2, 2]),
        (0, [6]),
        (250_000, [2, 2, 2]),
        (100_000, [1, 1, 1, 1, 1, 1]),
        (8 << 20, [6]),
    ],
)
def test_bytes_per_frame(api: Api, log: str, budget: int | None, sizes: list[int]) -> None:
    """256 KiB by default; zero stands for 1 MiB."""
    api.append(log, *["x" * 99_998] * 6)
    fields = {} if budget is None else {"max_batch_bytes": budget}
    with api.watch(log, **fields) as stream:
        found = bodies(drain(stream), "record")
    assert [len(body["records"]) for body in found] == sizes


def test_records_larger_than_the_budget(api: Api, log: str) -> None:
    """Each comes alone."""
    api.append(log, *["x" * 600_000] * 2)
    with api.watch(log) as stream:
        found = bodies(drain(stream), "record")
    assert [len(body["records"]) for body in found] == [1, 1]


# -- several topics -----------------------------------------------------------------------------


def test_topics_are_drained_in_name_order(api: Api, topic: str) -> None:
    """One after another, each with its own caught-up; ids hold all of them."""
    names = [f"{topic}{letter}" for letter in "abc"]
    for name in names:
        api.make_log(name)
        api.append(name, *range(5))
    with api.watch(*reversed(names), limit=2) as stream:
        frames = drain(stream, 3)
    order = [(frame.json()["topic"], frame.event) for frame in frames]
    assert [entry for index, entry in enumerate(order) if order[index - 1] != entry] == [
        (name, event) for name in names for event in ("record", "caught-up")
    ]
    assert all(seqs_in(frames, name) == [1, 2, 3, 4, 5] for name in names)
    assert all(set(cursors_in(frame)) == set(names) for frame in frames)
    assert cursors_in(frames[0]) == {names[0]: 2, names[1]: 0, names[2]: 0}
    assert cursors_in(frames[-1]) == dict.fromkeys(names, 5)


def test_live_records_of_several_topics(api: Api, topic: str) -> None:
    """Each topic's own order holds."""
    names = [f"{topic}{letter}" for letter in "abc"]
    for name in names:
        api.make_log(name)
    with api.watch(*names) as stream:
        drain(stream, 3)
        for number in range(30):
            api.append(names[number % 3], number)
        frames = receive(stream, 30)
    for place, name in enumerate(names):
        assert data_in(frames, name) == list(range(place, 30, 3))


def test_queues_and_topics_of_all_classes(api: Api, topic: str) -> None:
    """Jobs are records; watching leases nothing."""
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        api.make_queue(f"{topic}{durability}", durability=durability)
        with api.watch(f"{topic}{durability}") as stream:
            drain(stream)
            api.append(f"{topic}{durability}", durability)
            assert data_in(drain(stream)) == [durability]
        assert api.facts(f"{topic}{durability}", "ready", "in_flight") == (1, 0)


def test_acked_jobs_are_passed_over(api: Api, queue: str) -> None:
    """Case 136: silently; leased ones are shown."""
    api.append(queue, 1, 2, 3)
    api.claimed(queue, max=2)
    ok(api.ack(queue, [1]))
    with api.watch(queue) as stream:
        frames = drain(stream)
    assert (kinds(frames), seqs_in(frames)) == (["record", "caught-up"], [2, 3])


def test_dead_letters_are_watched(api: Api, topic: str) -> None:
    """Copies are normal records of the target."""
    target = f"{topic}dlq"
    api.make_log(target)
    api.make_queue(topic, max_deliveries=1, dead_letter=target)
    api.append(topic, "bad")
    with api.watch(target) as stream:
        drain(stream)
        ok(api.nack(topic, seqs_of(api.claimed(topic))))
        assert api.claimed(topic) == []
        [record] = records_in(drain(stream))
        assert (record["data"], record["meta"]["$dead_letter_from"]) == ("bad", topic)


def test_many_streams_on_one_topic(api: Api, log: str) -> None:
    """Sessions do not share anything."""
    streams = [api.watch(log) for _ in range(10)]
    try:
        api.append(log, *range(20))
        for stream in streams:
            assert seqs_in(receive(stream, 20)) == list(range(1, 21))
    finally:
        for stream in streams:
            stream.close()


def test_a_reader_that_does_not_read(api: Api, topic: str) -> None:
    """It slows no other reader, and finds everything when it reads again."""
    api.make_log(topic)
    with api.watch(topic) as lazy, api.watch(topic) as eager:
        drain(eager)
        for _ in range(4):
            api.append(topic, *["x" * 500_000] * 8)
        for stream in (eager, lazy):
            assert seqs_in(receive(stream, 32)) == list(range(1, 33))
    ok(api.delete_topic(topic))


# -- heartbeats and shutdown --------------------------------------------------------------------


def test_heartbeats(fast: Api) -> None:
    """Comments with hb and nothing else, again and again; cursors stay."""
    fast.make_log("beaten")
    with fast.watch("beaten", heartbeat_ms=1) as stream:
        drain(stream)
        frames = [stream.next_frame() for _ in range(3)]
        assert [(frame.comment, frame.event, frame.id) for frame in frames] == [
            ("hb", None, None)
        ] * 3
        fast.append("beaten", 1)
        assert cursors_in(drain(stream)[-1]) == {"beaten": 1}


def test_the_floor_of_heartbeats(api: Api, log: str) -> None:
    """Case 90: at most one in a second of silence, whatever was asked for."""
    started = time.monotonic()
    with api.watch(log, heartbeat_ms=1) as stream:
        drain(stream)
        assert stream.next_frame().comment == "hb"
        assert time.monotonic() - started >= 0.99


def test_shutdown(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """An error frame says why, the stream ends, the server stops in good order."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l")
    with api.watch("l") as stream:
        drain(stream)
        server.send_signal(signal.SIGTERM)
        frame = stream.next_event()
        assert frame.event == "error"
        body = frame.json()
        assert body["code"] == "server_shutting_down"
        assert body["message"]
        assert cursors_in(frame) == {"l": 0}
        assert stream.ended()
    assert server.wait() == 0


@pytest.mark.parametrize("leave", [Stream.close, Stream.reset], ids=["close", "reset"])
def test_a_client_that_leaves_harms_no_other(
    api: Api, log: str, leave: Callable[[Stream], None]
) -> None:
    """Others go on."""
    with api.watch(log) as other:
        drain(other)
        stream = api.watch(log)
        drain(stream)
        leave(stream)
        api.append(log, 1)
        assert seqs_in(drain(other)) == [1]
