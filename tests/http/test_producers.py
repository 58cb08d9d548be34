"""Transactional appends: staged chunks, commits that make them visible, and who may do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess

U64_MAX = 2**64 - 1
Part = tuple[int, str, int, int]


class Writer:
    """A producer's side of the API."""

    def __init__(self, api: Api, producer: str, topic: str) -> None:
        self.api = api
        self.producer = producer
        self.topic = topic

    def stage(self, epoch: object, data: list[Any], **fields: Any) -> httpx.Response:
        """Stage one chunk; `records` replaces what `data` says."""
        body = {"topic": self.topic, "records": [{"data": value} for value in data], **fields}
        return self.api.json("POST", f"{self.path}/epochs/{epoch}/stage", body)

    def commit(self, epoch: object, *parts: Part, **fields: Any) -> httpx.Response:
        """Commit an epoch."""
        names = ("partition", "attempt", "chunks", "rows")
        body = {"parts": [dict(zip(names, part, strict=True)) for part in parts], **fields}
        return self.api.json("POST", f"{self.path}/epochs/{epoch}/commit", body)

    def state(self) -> httpx.Response:
        """Where it stands."""
        return self.api.send("GET", self.path)

    @property
    def path(self) -> str:
        return f"/v0/producers/{self.producer}"

    def values(self) -> list[Any]:
        """What the topic holds."""
        return [record["data"] for record in self.api.read(self.topic, limit=1000)]


@pytest.fixture
def writer(api: Api, topic: str) -> Writer:
    """A new producer on the shared server."""
    return Writer(api, topic + "p", topic + "t")


def untimed(reply: httpx.Response) -> Json:
    """A good reply but its performance block."""
    body = ok(reply)
    assert set(body.pop("performance")) == {"server_total_ms"}
    return body


# -- what it does --------------------------------------------------------------------------------


def test_an_epoch_becomes_visible_all_at_once(writer: Writer) -> None:
    """Every member of every reply, from first to last."""
    refused(writer.state(), 404, "not_found", {"producer": writer.producer})
    first = untimed(writer.stage(7, [3], partition=1, attempt="a"))
    size = first.pop("staged_bytes")
    assert first == {"producer": writer.producer, "epoch": 7, "status": "staged"} and size > 0
    second = untimed(writer.stage(7, [1, 2]))
    staged = second["staged_bytes"]
    assert second["status"] == "staged" and staged > size
    assert writer.values() == []
    head = {"producer": writer.producer}
    assert untimed(writer.state()) == {
        **head,
        "last_epoch": None,
        "staged": {"epochs": [7], "bytes": staged},
    }
    told = [{"topic": writer.topic, "first_seq": 1, "last_seq": 3, "count": 3}]
    done = {**head, "epoch": 7, "topics": told}
    parts: list[Part] = [(1, "a", 1, 1), (0, "", 1, 2)]
    assert untimed(writer.commit(7, *parts)) == {**done, "status": "committed"}
    assert writer.values() == [1, 2, 3]
    assert untimed(writer.commit(7, *parts)) == {**done, "status": "already"}
    assert untimed(writer.stage(7, [1, 2])) == {
        **head,
        "epoch": 7,
        "status": "already",
        "staged_bytes": 0,
    }
    assert untimed(writer.state()) == {
        **head,
        "last_epoch": 7,
        "staged": {"epochs": [], "bytes": 0},
    }
    assert writer.values() == [1, 2, 3]


def test_an_abort_frees_what_was_staged(writer: Writer) -> None:
    def abort(epoch: object) -> httpx.Response:
        return writer.api.send("POST", f"{writer.path}/epochs/{epoch}/abort")

    head = {"producer": writer.producer}
    aborted = {**head, "epoch": 7, "status": "aborted", "staged_bytes": 0}
    assert untimed(abort(7)) == aborted
    refused(writer.state(), 404, "not_found", {"producer": writer.producer})
    ok(writer.stage(7, [1, 2]))
    assert untimed(abort(7)) == aborted
    assert ok(writer.state())["staged"] == {"epochs": [], "bytes": 0}
    conflict = refused(writer.commit(7, (0, "", 1, 2)), 409, "epoch_conflict")
    assert conflict["reason"] == "missing"
    ok(writer.stage(7, [3]))
    ok(writer.commit(7, (0, "", 1, 1)))
    assert untimed(abort(7)) == {**aborted, "status": "committed"}
    assert refused(abort(9), 409, "epoch_conflict")["reason"] == "gap"
    refused(abort("x"), 400, "invalid_request")
    assert writer.values() == [3]


def test_repeats(writer: Writer) -> None:
    """A chunk that was staged before, an epoch without records, an epoch before the last."""
    assert ok(writer.stage(0, [1]))["status"] == "staged"
    assert ok(writer.stage(0, [1]))["status"] == "already"
    ok(writer.commit(0, (0, "", 1, 1)))
    assert untimed(writer.commit(1))["topics"] == []
    assert ok(writer.commit(1))["status"] == "already"
    refused(writer.stage(0, [1], topic="-bad"), 400, "invalid_request")
    old = ok(writer.commit(0, (0, "", 1, 1)))
    assert (old["status"], old["topics"]) == ("already", [])
    assert writer.values() == [1]


def test_the_digest_of_an_epoch(fresh_server: FreshServer, api_for: ApiFor) -> None:
    server = fresh_server()
    ok(Writer(api_for(server), "p", "t").stage(3, [1, 2]))
    for status, parts in (("committed", (0, "", 1, 2)), ("already", (1, "x", 2, 2))):
        writer = Writer(api_for(server), "p", "t")
        assert ok(writer.commit(3, parts, content="one"))["status"] == status
        refused(writer.commit(3, parts, content="two"), 409, "epoch_conflict")
        server.restart()


def test_the_winning_attempt_and_several_topics(writer: Writer) -> None:
    """Losers are let go, topics come in the order of partitions."""
    api, other = writer.api, writer.topic + "2"
    ok(writer.stage(0, ["lost"], attempt="a"))
    ok(writer.stage(0, ["won"], attempt="b"))
    ok(writer.stage(0, ["more"], attempt="b", chunk=1))
    ok(writer.stage(0, ["other"], attempt="b", chunk=2, topic=other))
    topics = ok(writer.commit(0, (0, "b", 3, 3)))["topics"]
    assert [(entry["topic"], entry["count"]) for entry in topics] == [(writer.topic, 2), (other, 1)]
    assert writer.values() == ["won", "more"]
    assert [record["data"] for record in api.read(other)] == ["other"]
    assert ok(writer.state())["staged"] == {"epochs": [], "bytes": 0}


def test_what_records_may_say(writer: Writer) -> None:
    """Everything of a write but keys."""
    api = writer.api
    api.make_queue(writer.topic)
    records = [
        {"data": 1, "tag": "t", "meta": {"m": 1}, "ttl_ms": 600_000, "unknown": 1},
        {"data": 2, "node": "own", "delay_ms": 600_000},
        {"data": 3, "max_deliveries": 1},
    ]
    ok(writer.stage(0, [], records=records, node="all"))
    ok(writer.commit(0, (0, "", 1, 3)))
    shown = api.read(writer.topic, include_tags=True)
    assert [record.get("$node") for record in shown] == ["all", "own", "all"]
    assert (shown[0]["$tag"], shown[0]["meta"]) == ("t", {"m": 1})
    assert api.facts(writer.topic, "ready", "delayed") == (2, 1)
    jobs = ok(api.jobs(writer.topic))["jobs"]
    assert jobs[0]["expires_at"] and jobs[1]["not_before"] and jobs[2]["max_deliveries"] == 1


def test_a_chunk_becomes_jobs_with_the_commit(writer: Writer) -> None:
    """A stream gets them at once, and nothing before."""
    api = writer.api
    api.make_queue(writer.topic)
    with api.work(writer.topic, node="w", max=9) as stream:
        ok(writer.stage(0, ["a", "b"]))
        assert api.facts(writer.topic, "ready", "in_flight", "count") == (0, 0, 0)
        assert ok(api.claim(writer.topic))["claimed"] == []
        ok(writer.commit(0, (0, "", 1, 2)))
        jobs = [frame.json() for frame in (*stream.until("job"), *stream.until("job"))]
    assert [job["data"] for job in jobs if "data" in job] == ["a", "b"]


def test_a_big_epoch_in_chunks(api_for: ApiFor, fresh_server: FreshServer) -> None:
    """100 000 records of four partitions, visible by one small call, in order."""
    server = fresh_server()
    writer = Writer(api_for(server), "big", "t")
    for partition in range(4):
        for chunk in range(5):
            start = partition * 25_000 + chunk * 5_000
            data = [*range(start, start + 5_000)]
            ok(writer.stage(0, data, partition=partition, chunk=chunk, attempt="a"))
    assert ok(writer.api.state("t"))["head_seq"] == 0
    (told,) = ok(writer.commit(0, *[(p, "a", 5, 25_000) for p in range(4)]))["topics"]
    assert told == {"topic": "t", "first_seq": 1, "last_seq": 100_000, "count": 100_000}
    for seq in (0, 4_999, 25_000, 99_999):
        (record,) = writer.api.read("t", from_seq=seq, limit=1)
        assert (record["$seq"], record["data"]) == (seq + 1, seq)


# -- refusals ------------------------------------------------------------------------------------


def test_conflicts(writer: Writer) -> None:
    """Each with its reason; nothing becomes visible by any of them."""
    where: Json = {"producer": writer.producer, "epoch": 5}
    ok(writer.stage(5, [1, 2]))

    def conflict(reply: httpx.Response, **detail: Any) -> None:
        refused(reply, 409, "epoch_conflict", {**where, **detail})

    conflict(writer.stage(5, [1, 3]), reason="content")
    conflict(writer.commit(5, (0, "", 2, 2)), reason="missing", partition=0)
    conflict(writer.commit(5, (3, "x", 1, 2)), reason="missing", partition=3)
    conflict(writer.commit(5, (0, "", 1, 3)), reason="rows", partition=0)
    assert writer.values() == []
    ok(writer.commit(5, (0, "", 1, 2)))
    conflict(writer.commit(5, (0, "", 1, 3)), reason="content")
    where["epoch"] = 7
    conflict(writer.stage(7, [1]), reason="gap", last_epoch=5)
    conflict(writer.commit(7), reason="gap", last_epoch=5)
    assert writer.values() == [1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": 1},
        {"topic": None},
        {"topic": "-bad"},
        {"topic": "a>b"},
        {"records": []},
        {"records": [{}]},
        {"records": {"data": 1}},
        {"records": [{"data": 1, "key": "k"}]},
        {"records": [{"data": 1, "on_conflict": "keep"}]},
        {"records": [{"data": 1, "tag": "x" * 257}]},
        {"records": [{"data": 1, "delay_ms": 1, "not_before": 1}]},
        {"records": [{"data": 1, "node": "x" * 129}]},
        {"partition": -1},
        {"partition": 2**32},
        {"partition": None},
        {"attempt": "x" * 129},
        {"attempt": 5},
        {"attempt": "ä" * 65},
        {"chunk": 100_000},
        {"chunk": 1.0},
        {"node": "x" * 129},
    ],
    ids=lambda fields: json.dumps(fields)[:40],
)
def test_what_can_not_be_staged(writer: Writer, fields: Json) -> None:
    """400, and neither topic nor producer come of it."""
    refused(writer.stage(0, [1], **fields), 400, "invalid_request", None)
    refused(writer.state(), 404, "not_found")
    refused(writer.api.state(writer.topic), 404, "topic_not_found")


def test_bounds_of_a_chunk(writer: Writer) -> None:
    """Those of a write; at each bound it still goes."""
    refused(writer.stage(0, [0] * 10_001), 400, "batch_too_large")
    refused(writer.stage(0, ["x" * (1 << 20)]), 400, "record_too_large")
    ok(writer.stage(0, [0] * 10_000, attempt="x" * 128, partition=2**32 - 1, chunk=99_999))
    ok(writer.stage(U64_MAX, [1]))
    ok(writer.commit(U64_MAX, (0, "", 1, 1)))
    assert ok(writer.state())["last_epoch"] == U64_MAX
    refused(writer.commit(0, content="x" * 129), 400, "invalid_request", None)


@pytest.mark.parametrize(
    "parts",
    [
        None,
        {},
        [None],
        [{}],
        [{"chunks": 1}],
        [{"rows": 1}],
        [{"chunks": -1, "rows": 1}],
        [{"chunks": 1, "rows": "1"}],
        [{"chunks": 1, "rows": 2**32}],
        [{"chunks": 1, "rows": 1, "attempt": "x" * 129}],
        [{"chunks": 1, "rows": 1}, {"chunks": 1, "rows": 1, "attempt": "b"}],
    ],
    ids=lambda parts: json.dumps(parts)[:40],
)
def test_what_can_not_be_committed(writer: Writer, parts: object) -> None:
    refused(writer.commit(0, parts=parts), 400, "invalid_request", None)
    refused(writer.state(), 404, "not_found")


def test_too_many_chunks_in_a_commit(writer: Writer) -> None:
    reply = writer.commit(0, (0, "", 50_000, 1), (1, "", 50_001, 1))
    refused(reply, 400, "batch_too_large", {"chunks": 100_001, "max": 100_000})


@pytest.mark.parametrize("verb", ["stage", "commit"])
@pytest.mark.parametrize("epoch", ["-1", "1.0", "x", "%20", "١", str(2**64), "9" * 5000])
def test_what_is_no_epoch(writer: Writer, verb: str, epoch: str) -> None:
    refused(
        getattr(writer, verb)(epoch, *([[1]] if verb == "stage" else [])), 400, "invalid_request"
    )


@pytest.mark.parametrize("name", ["-bad", ".x", "a%20b", "a%2Fb", "%E4%BD%A0", "a" * 256])
def test_what_is_no_producer(api: Api, topic: str, name: str) -> None:
    """400 where it would be made; to be looked at it is merely absent."""
    writer = Writer(api, name, topic)
    refused(writer.stage(0, [1]), 400, "invalid_request", None)
    refused(writer.commit(0), 400, "invalid_request", None)
    refused(writer.state(), 404, "not_found")
    refused(api.state(topic), 404, "topic_not_found")


def test_router_names_are_fine(api: Api, topic: str) -> None:
    writer = Writer(api, topic + "a->b", topic)
    assert ok(writer.commit(0))["producer"] == topic + "a->b"
    assert ok(writer.state())["last_epoch"] == 0


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("", "POST", 405, "method_not_allowed"),
        ("", "DELETE", 405, "method_not_allowed"),
        ("/epochs/0/stage", "GET", 405, "method_not_allowed"),
        ("/epochs/0/commit", "PUT", 405, "method_not_allowed"),
        ("/epochs/0", "GET", 404, "not_found"),
        ("/epochs", "GET", 404, "not_found"),
        ("/epochs/0/undo", "POST", 404, "not_found"),
        ("/epochs/0/stage/", "POST", 404, "not_found"),
        ("/epochs//stage", "POST", 404, "not_found"),
    ],
)
def test_other_paths_and_methods(
    writer: Writer, path: str, method: str, status: int, code: str
) -> None:
    refused(writer.api.send(method, writer.path + path, b"{}", JSON), status, code, None)
    if not path:
        refused(writer.api.send("GET", "/v0/producers"), 404, "not_found", None)


@pytest.mark.parametrize("verb", ["stage", "commit"])
def test_bodies(writer: Writer, verb: str) -> None:
    path = f"{writer.path}/epochs/0/{verb}"
    api = writer.api
    refused(api.send("POST", path), 415, "unsupported_media_type", None)
    refused(api.send("POST", path, b"", JSON), 400, "invalid_request", None)
    refused(
        api.send("POST", path, b"{}", {"content-type": "text/x"}), 415, "unsupported_media_type"
    )
    for body in (b"{", b"[]", b"{}x", b"\xff", b"[" * 10_000, b'{"topic":"a","records":[ '):
        refused(api.send("POST", path, body, JSON), 400, "invalid_request", None)


def test_blanks_in_payloads_are_taken_out(writer: Writer) -> None:
    """A staged record is stored as a written one."""
    body = b'{"topic": "%b",\n "records": [ { "data" : { "a" : [ 1 , "x y" ] } } ] }'
    path = f"{writer.path}/epochs/0/stage"
    ok(writer.api.send("POST", path, body % writer.topic.encode(), JSON))
    ok(writer.commit(0, (0, "", 1, 1)))
    assert writer.values() == [{"a": [1, "x y"]}]
    assert writer.api.facts(writer.topic, "bytes") == (len(b'{"a":[1,"x y"]}'),)


def test_what_only_queues_know_is_refused_for_logs(writer: Writer) -> None:
    """As in a write, also for a log that the chunk would make."""
    detail = {"topic": writer.topic, "field": "delay_ms"}
    records = [{"data": 1, "delay_ms": 5}]
    refused(writer.stage(0, [], records=records), 409, "not_a_queue", detail)
    refused(writer.api.state(writer.topic), 404, "topic_not_found")
    writer.api.make_log(writer.topic)
    refused(writer.stage(0, [], records=records), 409, "not_a_queue", detail)
    ok(writer.stage(0, [], records=[{"data": 1, "ttl_ms": 600_000}]))


def test_a_full_topic_refuses_the_whole_epoch(writer: Writer) -> None:
    api, full = writer.api, writer.topic + "full"
    api.make_log(full, cap_records=2, discard="reject")
    api.append(full, "x")
    ok(writer.stage(0, [1]))
    ok(writer.stage(0, [1, 2], chunk=1, topic=full))
    assert refused(writer.commit(0, (0, "", 2, 3)), 422, "topic_full")["topic"] == full
    assert writer.values() == []
    ok(api.put(full, durability="memory", cap_records=3, discard="reject"))
    ok(writer.commit(0, (0, "", 2, 3)))
    assert writer.values() == [1]


def test_a_deleted_topic_takes_its_chunks(writer: Writer) -> None:
    ok(writer.stage(0, [1]))
    ok(writer.api.delete_topic(writer.topic))
    assert ok(writer.state())["staged"] == {"epochs": [], "bytes": 0}
    assert refused(writer.commit(0, (0, "", 1, 1)), 409, "epoch_conflict")["reason"] == "missing"


# -- keys ----------------------------------------------------------------------------------------

KEYS = "full,reader:read,writer:write,tenant:rw:tenant-,other:rw:other-"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys."""
    directory = tmp_path_factory.mktemp("producers") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": KEYS}).start()
    yield process
    process.stop()


@pytest.mark.parametrize(
    ("key", "may_write", "may_read"),
    [("reader", False, True), ("writer", True, False), ("full", True, True)],
)
def test_scopes(
    guarded: ServerProcess, api_for: ApiFor, key: str, may_write: bool, may_read: bool
) -> None:
    writer = Writer(api_for(guarded, key), "scoped", "scoped")
    ok(Writer(api_for(guarded, "full"), "scoped", "scoped").stage(0, [1]))
    for reply, may in (
        (writer.stage(0, [1]), may_write),
        (writer.commit(0, (0, "", 1, 1)), may_write),
        (writer.state(), may_read),
    ):
        if may:
            ok(reply)
        else:
            refused(reply, 403, "forbidden", None)
    head = writer.api.send("HEAD", writer.path)
    assert head.status_code == (200 if may_read else 403)


def test_without_a_key(guarded: ServerProcess, api_for: ApiFor) -> None:
    writer = Writer(api_for(guarded), "stranger", "t")
    for reply in (writer.stage("x", [1]), writer.commit(0), writer.state()):
        refused(reply, 401, "unauthorized", None)


def test_prefixes(guarded: ServerProcess, api_for: ApiFor) -> None:
    """The producer must be allowed, and every topic that a commit reaches."""
    tenant = Writer(api_for(guarded, "tenant"), "tenant-p", "tenant-a")
    full = Writer(api_for(guarded, "full"), "tenant-p", "tenant-a")
    detail = {"topic": "other-a"}
    refused(tenant.stage(0, [1], topic="other-a"), 403, "forbidden", detail)
    refused(tenant.stage("x", [], topic="other-a"), 403, "forbidden", detail)
    ok(tenant.stage(0, [1]))
    ok(full.stage(0, [2], attempt="b", partition=1, topic="other-a"))
    parts: list[Part] = [(0, "", 1, 1), (1, "b", 1, 1)]
    refused(tenant.commit(0, *parts), 403, "forbidden", None)
    refused(tenant.commit(0, parts[0]), 403, "forbidden", None)
    refused(tenant.commit(5), 403, "forbidden", None)
    assert ok(full.state())["last_epoch"] is None
    ok(full.commit(0, *parts))
    refused(tenant.commit(0, *parts), 403, "forbidden", None)
    ok(tenant.stage(1, [3]))
    ok(tenant.commit(1, parts[0]))
    assert full.values() == [1, 3]


def test_a_producer_belongs_to_its_prefix(guarded: ServerProcess, api_for: ApiFor) -> None:
    """No other key commits its next epoch, whose records would then be taken for a repeat."""
    tenant = Writer(api_for(guarded, "tenant"), "tenant-own", "tenant-b")
    other = Writer(api_for(guarded, "other"), "tenant-own", "other-b")
    ok(tenant.stage(1, [1]))
    ok(tenant.commit(1, (0, "", 1, 1)))
    for reply in (other.commit(2), other.stage(2, [9]), other.stage("x", []), other.state()):
        refused(reply, 403, "forbidden", None)
    absent = Writer(api_for(guarded, "other"), "tenant-absent", "other-b")
    refused(absent.state(), 403, "forbidden", None)
    ok(tenant.stage(2, [2]))
    assert ok(tenant.commit(2, (0, "", 1, 1)))["status"] == "committed"
    assert tenant.values() == [1, 2]


# -- through any end -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["terminate", "kill"])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_an_end_between_stage_and_commit(
    fresh_server: FreshServer, api_for: ApiFor, stop: str, durability: str
) -> None:
    """Chunks that were answered are still staged, and what was committed stays so, once."""
    server = fresh_server()

    def again() -> Writer:
        getattr(server, stop)()
        server.start()
        return Writer(api_for(server), "p", "t")

    writer = Writer(api_for(server), "p", "t")
    writer.api.make_queue("t", durability=durability)
    ok(writer.stage(4, ["a", "b"], attempt="x"))
    ok(writer.stage(4, ["c"], attempt="x", chunk=1))
    before = untimed(writer.state())
    writer = again()
    assert untimed(writer.state()) == before and writer.values() == []
    assert ok(writer.stage(4, ["c"], attempt="x", chunk=1))["status"] == "already"
    first = untimed(writer.commit(4, (0, "x", 2, 3)))
    assert first.pop("status") == "committed"
    ok(writer.commit(5))
    writer = again()
    assert ok(writer.state())["last_epoch"] == 5
    assert ok(writer.commit(4, (0, "x", 2, 3)))["status"] == "already"
    ok(writer.stage(6, ["d"]))
    ok(writer.commit(6, (0, "", 1, 1)))
    writer = again()
    assert [job["data"] for job in writer.api.claimed("t", max=9)] == ["a", "b", "c", "d"]


def test_metrics(fresh_server: FreshServer, api_for: ApiFor) -> None:
    server = fresh_server()
    writer = Writer(api_for(server), "p", "t")

    def gauges() -> tuple[float, float]:
        text = writer.api.send("GET", "/v0/metrics").text
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return float(found["logqueue_producers"]), float(found["logqueue_staged_bytes"])

    assert gauges() == (0, 0)
    size = ok(writer.stage(0, [1]))["staged_bytes"]
    assert gauges() == (1, size)
    ok(writer.commit(0, (0, "", 1, 1)))
    assert gauges() == (1, 0)
