"""The logs themselves over HTTP: which segments there are, their bytes, and seqs by time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import msgspec
import pytest

from logqueue import events as ev
from logqueue.segments.index import SegmentIndex, TopicPart
from logqueue.segments.known import RouterFacts, TopicFacts
from logqueue.server.storage.segment_store import LOG_NAMES
from logqueue.shapes import (
    Segment,
    SegmentPage,
    SegmentRouterFacts,
    SegmentTopic,
    SegmentTopicFacts,
)
from tests.http.api import Api, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, refused
from tests.http.process import ServerProcess
from tests.http.rawhttp import Connection
from wal.format import End, Walk, decode_header, salt_of

LIST = "/v0/log/segments"
SMALL = "16384"


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of small segments with an archive, and keys."""
    directory = tmp_path_factory.mktemp("segments")
    settings = {
        "ARCHIVE_DIR": str(directory / "archive"),
        "SEGMENT_MAX_BYTES": SMALL,
        "API_KEYS": "full,reader:read,writer:write,part:read:some.",
    }
    process = ServerProcess(directory / "data", settings=settings).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def stage(archived: ServerProcess) -> Iterator[Api]:
    """A client of it, after some work: several segments of either log."""
    with Api(archived.base_url, key="full") as api:
        api.make_queue("q")
        api.make_log("l", durability="disk")
        api.make_router("r", "q", "copies")
        for number in range(30):
            api.append("q", *[{"number": number, "pad": "x" * 100}] * 20)
            api.append("l", number)
        for _ in range(120):
            worker = "w" * 100
            ok(api.ack("q", seqs_of(api.claimed("q", worker, max=5)), worker))
        yield api


def listed(api: Api, log: str = "jobs", **query: Any) -> list[Json]:
    """All segments, one page after the other."""
    found: list[Json] = []
    cursor: str | None = ""
    while cursor is not None:
        given = {"log": log, **query, **({"cursor": cursor} if cursor else {})}
        body = ok(api.send("GET", LIST + "?" + str(httpx.QueryParams(given))))
        assert (body["log"], len(body["log_id"])) == (log, 32)
        found += body["segments"]
        cursor = body.get("next_cursor")
    return found


def fetched(api: Api, id: str, **headers: str) -> httpx.Response:
    """A segment's bytes, as the reply brings them."""
    reply = api.send("GET", f"{LIST}/{id}", headers=headers)
    if reply.status_code in (200, 206):
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["accept-ranges"] == "bytes"
        assert int(reply.headers["content-length"]) == len(reply.content)
    return reply


def transactions(data: bytes) -> list[ev.Transaction]:
    """The transactions of a whole segment."""
    _, header = decode_header(data)
    assert header is not None
    salt = salt_of(header.identity, header.id)
    walk = Walk(data, salt, header.first, header.id, 1 << 28)
    found = [ev.decode(frame.payload) for frame in walk]
    assert walk.end is End.CLEAN, walk.problem
    return found


# -- what is listed and sent is what was written ---------------------------------------------------


@pytest.mark.parametrize("log", LOG_NAMES)
def test_bytes_are_what_the_list_says(stage: Api, log: str) -> None:
    """Every transaction below `order` is there, in segments that follow on."""
    order = ok(stage.send("GET", f"{LIST}?log={log}"))["order"]
    found = listed(stage, log)
    assert len(found) > (4 if log == "jobs" else 1)
    assert [s["segment"] for s in found] == [*range(1, len(found) + 1)]
    assert [s["sealed"] for s in found] == [True] * (len(found) - 1) + [False]
    orders: list[int] = []
    frame = 1
    for segment in found:
        assert segment["id"] == f"{log}-{segment['segment']}" and "damage" not in segment
        data = fetched(stage, segment["id"]).content[: segment["bytes"]]
        assert crc32(data) == segment["crc32"]
        told = transactions(data)
        assert segment["first_frame"] == frame
        frame += len(told)
        assert segment["last_frame"] == frame - 1
        orders += [transaction.order for transaction in told]
        times = [event.at for transaction in told for event in transaction.events]
        assert (segment["first_at"], segment["last_at"]) == (min(times), max(times))
    assert orders == sorted(orders) and orders[-1] < order
    if log == "jobs":
        parts = [part for s in found for part in s["topics"] if part["name"] == "q"]
        assert sum(part.get("rows", 0) for part in parts) == 600
        assert parts[0]["ranges"][0][0] == 1


def test_what_was_answered_is_listed(stage: Api) -> None:
    """Also of topics and logs that are never synced."""
    for number in range(5):
        stage.append("l", number)
        head = ok(stage.state("l"))["head_seq"]
        last = listed(stage, topic="l")[-1]
        (part,) = [part for part in last["topics"] if part["name"] == "l"]
        assert part["ranges"][-1][1] == head
        stage.append("q", number)
        (job,) = stage.claimed("q")
        data = fetched(stage, listed(stage, "leases")[-1]["id"]).content
        grants = [
            seqs
            for transaction in transactions(data)
            for event in transaction.events
            if isinstance(event, ev.JobsClaimed)
            for *_, seqs in event.grants
        ]
        assert grants[-1] == [job["$seq"]]


def test_ids_of_logs_and_topics(stage: Api) -> None:
    (part,) = [p for p in listed(stage)[-1]["topics"] if p["name"] == "q"][:1] or [None]
    state = ok(stage.state("q"))
    at = ok(stage.send("GET", "/v0/topics/q/seq_at?ts=0"))
    assert state["log_id"] == at["log_id"]
    assert part is None or part["log_id"] == state["log_id"]
    assert state["log_id"].rpartition("-")[0] == ok(stage.send("GET", LIST))["log_id"]
    stage.make_log("again")
    first = ok(stage.state("again"))["log_id"]
    ok(stage.delete_topic("again"))
    stage.make_log("again")
    assert ok(stage.state("again"))["log_id"] != first


def test_the_list_reads_as_indexes(stage: Api) -> None:
    """What the server's own index says is in it, member by member, and in the shapes."""
    for segment in listed(stage):
        index = msgspec.convert(segment, SegmentIndex)
        assert index.part(1) is None or index.part(1).name == "q"  # type: ignore[union-attr]
        msgspec.convert(segment, Segment)
    beside = {"id", "sealed", "archived", "damage"}
    for shape, index_of in (
        (Segment, SegmentIndex),
        (SegmentTopic, TopicPart),
        (SegmentTopicFacts, TopicFacts),
        (SegmentRouterFacts, RouterFacts),
    ):
        told = {field.name for field in msgspec.structs.fields(shape)}
        assert told - beside == {field.name for field in msgspec.structs.fields(index_of)}


def test_archived_soon_after_sealing(stage: Api, archived: ServerProcess) -> None:
    eventually(lambda: all(s["archived"] for s in listed(stage) if s["sealed"]))
    directory = archived.data_dir.with_name("archive") / "jobs"
    for segment in listed(stage):
        if segment["sealed"]:
            path = directory / f"{segment['segment']:020d}.wal"
            assert path.read_bytes() == fetched(stage, segment["id"]).content
            beside = Path(f"{path}.idx")
            assert eventually(beside.exists), "the index follows its segment"
            index = msgspec.json.decode(beside.read_bytes().splitlines()[0])
            assert index["crc32"] == segment["crc32"]


# -- choosing --------------------------------------------------------------------------------------


def test_topics_since_and_pages(stage: Api) -> None:
    everything = listed(stage)
    ids = [s["id"] for s in everything]
    assert [s["id"] for s in listed(stage, page_size=2)] == ids
    assert [s["id"] for s in listed(stage, since=3, page_size=1)] == ids[2:]
    assert listed(stage, since=10**18) == []
    assert listed(stage, topic="nothing.of.the.kind") == []
    of_l = listed(stage, topic="l,nothing")
    assert of_l and all({p["name"] for p in s["topics"]} <= {"l"} for s in of_l)
    assert [s["id"] for s in of_l] == [
        s["id"] for s in everything if any(p["name"] == "l" for p in s["topics"])
    ]
    copies = listed(stage, topic="copies")
    names = {part["name"] for s in copies for part in s["topics"]}
    assert names == {"copies", "q"}, "what copies are made of has to be found"
    leases = listed(stage, "leases", topic="q")
    assert leases and all(part["name"] == "q" for s in leases for part in s["topics"])
    assert listed(stage, "leases", topic="l") == []


@pytest.mark.parametrize(
    "query",
    [
        "log=", "log=other", "log=jobs%00", "since=-1", "since=1.5", "since=x", "since=%D9%A1",
        "since=" + "9" * 30, "cursor=x", "cursor=eyJhZnRlciI6ImwifQ", "topic=%FF",
    ],
)  # fmt: skip
def test_bad_queries(stage: Api, query: str) -> None:
    refused(stage.send("GET", f"{LIST}?{query}"), 400, "invalid_request")


@pytest.mark.parametrize("query", ["topic=", "topic=,,", "topic=" + "a," * 5000, "page_size=x"])
def test_odd_queries(stage: Api, query: str) -> None:
    ok(stage.send("GET", f"{LIST}?{query}"))


# -- bytes -----------------------------------------------------------------------------------------


def test_ranges(stage: Api) -> None:
    whole = fetched(stage, "jobs-1")
    data, size, tag = whole.content, len(whole.content), whole.headers["etag"]
    assert whole.status_code == 200 and tag.startswith('"') and size > 4096
    for asked, start, stop in (
        ("bytes=0-0", 0, 1),
        ("bytes=4096-5000", 4096, 5001),
        ("bytes=4096-", 4096, size),
        (f"bytes={size - 1}-{size + 10}", size - 1, size),
        ("bytes=-10", size - 10, size),
        (f"bytes=-{size + 10}", 0, size),
        ("Bytes = 5-9", 5, 10),
    ):
        reply = fetched(stage, "jobs-1", range=asked)
        assert reply.status_code == 206 and reply.content == data[start:stop], asked
        assert reply.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert fetched(stage, "jobs-1", **{"range": asked, "if-range": tag}).status_code == 206
        assert fetched(stage, "jobs-1", **{"range": asked, "if-range": '"x"'}).content == data
    for ignored in (
        "bytes=0-1,5-6", "bytes=5-2", "bytes=-", "bytes=a-b", "lines=1-2", "", "bytes=0-1;",
        "bytes=" + "9" * 40 + "-", "bytes=+1-2",
    ):  # fmt: skip
        reply = fetched(stage, "jobs-1", range=ignored)
        assert reply.status_code == 200 and reply.content == data, ignored
    for empty in (f"bytes={size}-", "bytes=-0", f"bytes={size + 5}-{size + 9}"):
        reply = fetched(stage, "jobs-1", range=empty)
        assert refused(reply, 416, "range_not_satisfiable") == {"bytes": size}
        assert reply.headers["content-range"] == f"bytes */{size}"


def test_heads(stage: Api) -> None:
    whole = fetched(stage, "jobs-1")
    head = stage.send("HEAD", f"{LIST}/jobs-1", headers={"range": "bytes=0-1"})
    assert head.status_code == 200 and head.content == b""
    assert head.headers == whole.headers
    assert stage.send("HEAD", LIST).status_code == 200
    assert stage.send("HEAD", f"{LIST}/jobs-999").status_code == 404


def test_a_growing_one_has_no_tag_and_only_grows(stage: Api) -> None:
    active = listed(stage)[-1]["id"]
    before = fetched(stage, active)
    assert "etag" not in before.headers
    stage.append("q", "more")
    part = fetched(stage, active, range=f"bytes={len(before.content)}-")
    if part.status_code == 206:
        assert fetched(stage, active).content.startswith(before.content + part.content)
    assert fetched(stage, active).content.startswith(before.content)


@pytest.mark.parametrize(
    "id",
    [
        "jobs-0", "jobs-999", "jobs-01", "jobs--1", "jobs-1.5", "jobs-", "1", "other-1", "JOBS-1",
        "jobs-" + "9" * 19, "jobs-" + "9" * 40, "%2E%2E%2Fjobs%2F1", "jobs-%D9%A1", "jobs-1%00",
    ],
)  # fmt: skip
def test_there_is_no_such_segment(stage: Api, id: str) -> None:
    refused(stage.send("GET", f"{LIST}/{id}"), 404, "segment_not_found")


def test_scopes_and_prefixes(archived: ServerProcess, stage: Api) -> None:
    paths = (LIST, f"{LIST}/jobs-1")
    with Api(archived.base_url, key="reader") as reader:
        assert [reader.send("GET", path).status_code for path in paths] == [200, 200]
        assert reader.send("GET", "/v0/topics/q/seq_at?ts=1").status_code == 200
    for key in ("writer", "part"):
        with Api(archived.base_url, key=key) as other:
            for path in (*paths, f"{LIST}/jobs-999", "/v0/topics/q/seq_at?ts=1"):
                refused(other.send("GET", path), 403, "forbidden")
    with Api(archived.base_url) as anonymous:
        for path in paths:
            refused(anonymous.send("GET", path), 401, "unauthorized")
            refused(anonymous.send("GET", f"{path}?token=full"), 401, "unauthorized")
    refused(stage.send("POST", LIST), 405, "method_not_allowed")


def test_a_reader_that_stops_reading_holds_nothing_up(
    fresh_server: FreshServer, api_for: ApiFor
) -> None:
    """It waits for as long as it likes, others go on; it leaves, and its place is free."""
    server = fresh_server(key="k", API_KEYS="k", MAX_INFLIGHT_PER_KEY="2")
    api = api_for(server, "k")
    api.make_log("l")
    for _ in range(12):
        api.append("l", "x" * 900_000)
    size = listed(api)[0]["bytes"]
    request = f"GET {LIST}/jobs-1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer k\r\n\r\n"
    for ends_politely in (False, True):
        with Connection(server.address) as slow, Connection(server.address) as slower:
            for connection in (slow, slower):
                connection.send(request.encode())
                assert connection.read_head(soon())[0] == 200
            refused(api.send("GET", "/v0/topics"), 429, "throttled")
            if not ends_politely:
                slow.reset()
            slower.close()
        eventually(lambda: api.send("GET", "/v0/topics").status_code == 200)
        ok(api.write("l", [{"data": 1}]))
    assert len(fetched(api, "jobs-1").content) >= size
    assert memory_kib(server.pid) < 400_000


def soon() -> float:
    """When something that takes no time is too late."""
    return time.monotonic() + 10


def memory_kib(pid: int) -> int:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


# -- while segments come and go --------------------------------------------------------------------


def dropped(api: Api, directory: Path) -> None:
    """Write and finish jobs until the log has dropped its first segment."""
    deadline = time.monotonic() + 20
    while (directory / "jobs" / f"{1:020d}.wal").exists():
        assert time.monotonic() < deadline
        api.append("q", *["x" * 100_000] * 20)
        while jobs := api.claimed("q", max=100):
            ok(api.ack("q", seqs_of(jobs)))


@pytest.mark.parametrize("has_archive", [True, False])
def test_what_the_log_has_dropped(
    fresh_server: FreshServer, api_for: ApiFor, tmp_path: Path, has_archive: bool
) -> None:
    """It is still sent to who has begun to read it; to others only from an archive."""
    settings = {"ARCHIVE_DIR": str(tmp_path / "archive")} if has_archive else {}
    server = fresh_server(SEGMENT_MAX_BYTES="4000000", **settings)
    api = api_for(server)
    api.make_queue("q")
    for _ in range(3):
        api.append("q", *["x" * 100_000] * 20)
    tag = fetched(api, "jobs-1", range="bytes=0-0").headers["etag"]
    with Connection(server.address) as slow:
        slow.send(f"GET {LIST}/jobs-1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        status, headers = slow.read_head(soon())
        assert status == 200
        dropped(api, server.data_dir)
        rest = slow.read_body(status, headers, soon()).body
    assert transactions(rest)
    ids = [segment["id"] for segment in listed(api)]
    if has_archive:
        again = fetched(api, "jobs-1", **{"range": "bytes=0-", "if-range": tag})
        assert (again.status_code, again.content) == (206, rest)
        assert ids[0] == "jobs-1"
        server.restart()
        assert fetched(api_for(server), "jobs-1").content == rest
    else:
        refused(fetched(api, "jobs-1"), 404, "segment_not_found")
        assert "jobs-1" not in ids


def test_damage_is_served_and_told(fresh_server: FreshServer, api_for: ApiFor) -> None:
    server = fresh_server(SEGMENT_MAX_BYTES=SMALL)
    api = api_for(server)
    api.make_log("l")
    for number in range(40):
        api.append("l", *[f"{number} {'x' * 90}"] * 20)
    path = server.data_dir / "jobs" / f"{2:020d}.wal"
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"damage")
    found = {segment["id"]: segment for segment in listed(api)}
    assert "check" in found["jobs-2"]["damage"] and found["jobs-2"]["bytes"] <= 8192
    assert fetched(api, "jobs-2").content == path.read_bytes()
    assert all("damage" not in segment for id, segment in found.items() if id != "jobs-2")
    path.write_bytes(b"")
    assert fetched(api, "jobs-2").content == b""


def test_an_archive_of_another_log(fresh_server: FreshServer, tmp_path: Path) -> None:
    settings = {"ARCHIVE_DIR": str(tmp_path / "archive"), "SEGMENT_MAX_BYTES": SMALL}
    first = fresh_server(**settings)
    with Api(first.base_url) as api:
        api.make_log("l")
        for number in range(20):
            api.append("l", *[f"{number} {'x' * 90}"] * 20)
        eventually(lambda: any(segment["archived"] for segment in listed(api)))
    second = ServerProcess(tmp_path / "other", settings=settings)
    second.spawn()
    assert second.wait() == 3 and "another server has the log archive" in second.log()
    first.stop()
    second.spawn()
    assert second.wait() == 1 and "holds the archive of another log" in second.log()
    assert os.listdir(tmp_path / "other" / "jobs") == [], "a start that refuses changes nothing"


# -- seqs by time ----------------------------------------------------------------------------------


def test_seq_at(stage: Api) -> None:
    stage.make_log("timed")
    times = []
    for number in range(4):
        stage.append("timed", number, number)
        times.append(stage.read("timed")[-1]["$ts"])
        while int(time.time() * 1000) <= times[-1]:
            pass

    def at(ts: int) -> tuple[int, int]:
        body = ok(stage.send("GET", f"/v0/topics/timed/seq_at?ts={ts}"))
        assert set(body) == {
            "topic", "log_id", "ts", "seq", "previous_seq", "earliest_seq", "head_seq",
            "performance",
        }  # fmt: skip
        assert (body["topic"], body["ts"], body["head_seq"]) == ("timed", ts, 8)
        return body["seq"], body["previous_seq"]

    assert at(0) == (1, 0)
    assert [at(ts) for ts in times] == [(1, 0), (3, 2), (5, 4), (7, 6)]
    assert at(times[1] + 1) == (5, 4) and at(times[3] + 1) == at(2**64 - 1) == (9, 8)
    ok(stage.delete("timed", before_seq=6))
    assert at(0) == at(times[1]) == (6, 0) and at(times[3]) == (7, 6)


@pytest.mark.parametrize("ts", ["", "x", "-1", "1.0", "%D9%A1", str(2**64), "9" * 30, "1%20", None])
def test_no_such_time(stage: Api, ts: str | None) -> None:
    query = "" if ts is None else f"?ts={ts}"
    refused(stage.send("GET", f"/v0/topics/q/seq_at{query}"), 400, "invalid_request")


def test_seq_at_of_absent_topics_and_of_copies(stage: Api) -> None:
    refused(stage.send("GET", "/v0/topics/absent/seq_at?ts=1"), 404, "topic_not_found")
    ok(stage.write("q", [{"data": 1}]))
    told = ok(stage.send("GET", "/v0/topics/copies/seq_at?ts=0"))
    assert told["head_seq"] == ok(stage.state("q"))["head_seq"], "routers have caught up"


def test_the_page_shape(stage: Api) -> None:
    reply = stage.send("GET", LIST)
    assert msgspec.json.decode(reply.content, type=SegmentPage).log == "jobs"
    assert [*json.loads(reply.content)][:3] == ["log", "log_id", "order"]
