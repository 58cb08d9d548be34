"""Both clients against the real server: topics, writing, reading, queues, routers, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from zlib import crc32

import httpx
import msgspec
import pytest

from logqueue import errors
from logqueue.client import Client, ConfigFields, EpochPart, Interrupted, NewRecord
from logqueue.shapes import Appended, Drift, Job, Record, Records, Tombstone, TopicDeleted
from tests.client.either import Opened
from tests.http.conftest import FreshServer
from tests.http.expect import eventually
from tests.http.process import ServerProcess


def jobs_of(stream: Iterator[Job | Interrupted], count: int) -> list[Job]:
    items = [*islice(stream, count)]
    assert all(isinstance(item, Job) for item in items)
    return [item for item in items if isinstance(item, Job)]


@dataclass
class Point:
    """Data of a producer's own type."""

    x: float
    y: float


# -- topics --------------------------------------------------------------------------------------


def test_the_life_of_a_topic(client: Client, topic: str) -> None:
    put = client.put_topic(topic, cap_records=5, durability="memory")
    assert put.created and put.config.cap_records == 5 and put.config.durability == "memory"
    assert not client.put_topic(topic).created
    state = client.topic(topic)
    assert (state.type, state.count, state.queue) == ("log", 0, None)
    assert state.config.cap_records == 0
    client.append(topic, ["a"], create=True)
    with pytest.raises(errors.TopicExistsIncompatible) as caught:
        client.put_topic(topic, type="queue")
    assert caught.value.detail == {
        "topic": topic,
        "existing_type": "log",
        "requested_type": "queue",
    }
    with pytest.raises(errors.TopicNotEmpty):
        client.drop_topic(topic, if_empty=True)
    assert client.drop_topic(topic).deleted
    assert not client.drop_topic(topic).deleted
    with pytest.raises(errors.TopicNotFound) as absent:
        client.topic(topic)
    assert absent.value.code == "topic_not_found" and absent.value.status == 404


def test_a_config_is_changed_in_the_version_that_was_read(client: Client, topic: str) -> None:
    version = client.put_topic(topic, cap_records=5).config_version
    client.patch_topic(topic, if_version=version, cap_records=6)
    for change in (client.put_topic, client.patch_topic):
        with pytest.raises(errors.ConfigChanged) as caught:
            change(topic, if_version=version, cap_records=7)
        assert caught.value.detail is not None
        assert caught.value.detail["config"]["cap_records"] == 6
    assert client.topic(topic).config.cap_records == 6


def test_a_topic_is_ensured_and_never_changed_by_that(client: Client, topic: str) -> None:
    wanted: ConfigFields = {"type": "queue", "max_deliveries": 4, "dead_letter": f"{topic}.dead"}
    assert client.ensure_topic(topic, **wanted).created
    again = client.ensure_topic(topic, **wanted)
    assert (again.created, again.differs) == (False, {})
    client.patch_topic(topic, max_deliveries=9)
    client.pause(topic)
    before = client.topic(topic).config
    other = client.ensure_topic(topic, **wanted)
    assert other.differs == {"max_deliveries": Drift(have=9, want=4)}
    assert client.topic(topic).config == before and before.paused


@pytest.mark.parametrize("call", ["put_topic", "patch_topic", "ensure_topic"])
def test_unknown_config_is_refused(client: Client, topic: str, call: str) -> None:
    with pytest.raises(TypeError, match="'max_delivery': did you mean max_deliveries"):
        getattr(client, call)(topic, max_delivery=3)
    with pytest.raises(TypeError, match="unknown config field 'nosuch': use archive, "):
        getattr(client, call)(topic, nosuch=1)


def test_topics_are_listed_over_pages(client: Client, topic: str) -> None:
    names = [f"{topic}{n:04}" for n in range(5)]
    for name in names:
        client.put_topic(name)
    assert [entry.topic for entry in client.topics(prefix=topic)] == names
    page = client.topic_page(prefix=topic, page_size=3)
    assert [entry.topic for entry in page.topics] == names[:3] and page.next_cursor
    rest = client.topic_page(prefix=topic, cursor=page.next_cursor)
    assert [entry.topic for entry in rest.topics] == names[3:] and rest.next_cursor is None


# -- writing -------------------------------------------------------------------------------------


def test_a_mistyped_topic_does_not_become_a_log(client: Client, topic: str) -> None:
    for create in (None, False):
        with pytest.raises(errors.TopicNotFound, match="append with create=True") as caught:
            client.append(topic, ["a"], create=create)
        assert topic in caught.value.message
    assert [*client.topics(prefix=topic)] == []
    assert client.append(topic, ["a"], create=True).created
    assert client.append(topic, ["a"]).seqs == [2]
    assert client.append(f"{topic}.queue", ["a"], config={"type": "queue"}).created
    with pytest.raises(TypeError, match="'kind'"):
        client.append(topic, ["a"], config={"kind": "queue"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (float("nan"), r"records\[1\].data is nan"),
        ({"a": [1, {"b": float("inf")}]}, r"records\[1\].data.a\[1\].b is inf"),
        (NewRecord(1, meta={"m": float("-inf")}), r"records\[1\].meta.m is -inf"),
        (Point(1.0, float("nan")), r"records\[1\].data.y is nan"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_nothing_is_sent(
    client: Client, topic: str, record: object, where: str
) -> None:
    with pytest.raises(ValueError, match=where):
        client.append(topic, [None, record], create=True)
    assert [*client.topics(prefix=topic)] == []
    with pytest.raises(ValueError, match=r"retry_backoff\.factor is nan"):
        client.put_topic(topic, retry_backoff={"factor": float("nan")})


def test_any_number_of_records_is_written_in_order(client: Client, topic: str) -> None:
    stored: list[Appended] = []
    total = client.append(
        topic, ({"n": n} for n in range(2500)), chunk=1000, on_progress=stored.append, create=True
    )
    assert [reply.count for reply in stored] == [1000, 1000, 500]
    assert [reply.created for reply in stored] == [True, False, False]
    assert stored[1].seqs == [*range(1001, 2001)]
    assert (total.count, total.first_seq, total.last_seq, total.head_seq) == (2500, 1, 2500, 2500)
    assert total.created and not total.deduped and total.seqs is None
    read = [*client.read(topic)]
    assert [r.data for r in read if isinstance(r, Record)] == [{"n": n} for n in range(2500)]


def test_nothing_is_nothing(client: Client, topic: str) -> None:
    assert client.append(topic, [], create=True).count == 0
    with pytest.raises(errors.TopicNotFound):
        client.topic(topic)


def test_a_record_may_say_more_than_its_data(client: Client, topic: str) -> None:
    sent = [
        None,
        "text",
        NewRecord({"a": [1.5, "ä"]}, tag="t", node="n", meta={"m": 1}),
        NewRecord(msgspec.Raw(b'{"raw": true}'), meta={}),
    ]
    reply = client.append(topic, sent, node="batch", create=True)
    assert reply.seqs == [1, 2, 3, 4]
    read = [r for r in client.read(topic) if isinstance(r, Record)]
    assert [(r.data, r.tag, r.node, r.meta) for r in read] == [
        (None, None, "batch", None),
        ("text", None, "batch", None),
        ({"a": [1.5, "ä"]}, "t", "n", {"m": 1}),
        ({"raw": True}, None, "batch", {}),
    ]


def test_records_that_were_read_can_be_written_elsewhere(client: Client, topic: str) -> None:
    client.append(topic, [NewRecord(1, tag="t", node="n", meta=[2])], create=True)
    records = [*client.read(topic)]
    client.append(topic + "copy", records, create=True)
    (copy,) = client.read(topic + "copy")
    assert isinstance(copy, Record)
    assert (copy.data, copy.tag, copy.node, copy.meta) == (1, "t", "n", [2])


def test_a_tombstone_is_not_written_as_if_it_were_data(client: Client, topic: str) -> None:
    client.put_topic(topic, cap_records=2)
    client.append(topic, range(5), create=True)
    with pytest.raises(TypeError, match="1 to 3 are lost"):
        client.append(topic + "copy", [*client.read(topic)], create=True)


@pytest.mark.parametrize("single", [{"a": 1}, "text", b"bytes", NewRecord(1)])
def test_a_single_record_is_not_taken_for_several(
    client: Client, topic: str, single: object
) -> None:
    with pytest.raises(TypeError, match="put a single record into a list"):
        client.append(topic, single, create=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [0, 10_001])
def test_chunks_have_bounds(client: Client, topic: str, chunk: int) -> None:
    with pytest.raises(ValueError, match="1 to 10000"):
        client.append(topic, [1], chunk=chunk, create=True)


def test_the_same_key_stores_the_same_records_once(client: Client, topic: str) -> None:
    first = client.append(topic, range(25), chunk=10, key="import", create=True)
    again = client.append(topic, range(25), chunk=10, key="import", create=True)
    assert (again.first_seq, again.last_seq, again.deduped) == (1, 25, True)
    assert not first.deduped and client.topic(topic).count == 25


def test_big_records_are_sent_in_bodies_the_server_takes(client: Client, topic: str) -> None:
    client.put_topic(topic, durability="ephemeral")
    stored: list[Appended] = []
    client.append(topic, ["x" * 1_000_000] * 40, on_progress=stored.append, create=True)
    assert [reply.count for reply in stored] == [10, 10, 10, 10]


def test_an_error_says_how_far_an_append_had_come(client: Client, topic: str) -> None:
    records = [*range(20), object(), *range(5)]
    with pytest.raises(TypeError) as caught:
        client.append(topic, records, chunk=10, create=True)
    assert caught.value.__notes__ == ["20 records were stored before this, up to seq 20"]
    assert client.topic(topic).count == 20


def test_an_awaiting_client_takes_async_records(opened: Opened, client: Client, topic: str) -> None:
    async def source() -> AsyncIterator[int]:
        for n in range(25):
            yield n

    if opened.kind == "blocking":
        with pytest.raises(TypeError, match="not iterable"):
            client.append(topic, source(), create=True)  # type: ignore[arg-type]
    else:
        assert client.append(topic, source(), chunk=10, create=True).count == 25  # type: ignore[arg-type]
        assert [r.data for r in client.read(topic) if isinstance(r, Record)] == [*range(25)]


def test_writes_may_be_kept_from_creating_topics(client: Client, topic: str) -> None:
    with pytest.raises(errors.TopicNotFound):
        client.append(topic, [1], create=False)
    client.append(topic, [1], config={"type": "queue", "lease_ms": 5000})
    assert client.topic(topic).config.lease_ms == 5000


# -- reading -------------------------------------------------------------------------------------


def test_reading_shows_where_records_are_lost(client: Client, topic: str) -> None:
    client.put_topic(topic, cap_records=3)
    client.append(topic, range(10), create=True)
    items = [*client.read(topic, 2)]
    lost = items[0]
    assert isinstance(lost, Tombstone)
    assert (lost.gap_from, lost.gap_to, lost.reason, lost.missed_estimate) == (3, 7, "cap", 5)
    assert [r.seq for r in items[1:] if isinstance(r, Record)] == [8, 9, 10]


def test_following_goes_on_when_more_is_written(client: Client, topic: str) -> None:
    client.append(topic, [1], create=True)
    with closing(client.read(topic, follow=True)) as records:
        assert next(records).data == 1  # type: ignore[union-attr]
        client.append(topic, [2], create=True)
        assert next(records).data == 2  # type: ignore[union-attr]


def test_reading_can_be_narrowed(client: Client, topic: str) -> None:
    client.append(
        topic, [NewRecord(1, tag="t", node="a", meta=1), NewRecord(2, node="b")], create=True
    )
    (only,) = client.read(topic, node="b", include_tags=False, include_meta=False)
    assert isinstance(only, Record)
    assert (only.data, only.tag, only.meta) == (1, None, None)
    page = client.diff(topic, limit=1)
    assert (page.next_from_seq, page.lag, page.caught_up) == (1, 1, False)


def test_records_are_deleted_by_seq_and_by_tag(client: Client, topic: str) -> None:
    client.append(topic, [NewRecord(n, tag=f"t{n}") for n in range(5)], create=True)
    assert client.delete_records(topic, before_seq=3).deleted == 2
    deleted = client.delete_records(topic, match=["tag", "Eq", "t4"])
    assert (deleted.deleted, deleted.earliest_seq, deleted.count) == (1, 3, 2)
    with pytest.raises(errors.InvalidRequest):
        client.delete_records(topic)


# -- queues --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e999", "-1E+400", "9" * 5000])
def test_numbers_beyond_int_and_float_come_as_decimals(
    client: Client, server: ServerProcess, queue: str, number: str
) -> None:
    body = f'{{"records":[{{"data":{number}}},{{"data":1.5}},{{"data":12}}]}}'
    headers = {"content-type": "application/json"}
    url = f"{server.base_url}/v0/topics/{queue}"
    httpx.post(url, content=body, headers=headers).raise_for_status()
    read = [r.data for r in client.read(queue) if isinstance(r, Record)]
    assert read == [Decimal(number), 1.5, 12]
    assert [type(data) for data in read] == [Decimal, float, int]
    with closing(client.work(queue, max=3)) as stream:
        assert [job.data for job in jobs_of(stream, 3)] == read
    assert [job.data for job in eventually(lambda: client.claim(queue, max=3).jobs)] == read


def test_the_life_of_jobs(client: Client, queue: str) -> None:
    client.append(
        queue, [NewRecord({"n": n}, tag="t", meta={"m": n}) for n in range(4)], create=True
    )
    claimed = client.claim(queue, max=3, lease_ms=60_000)
    assert claimed.count == 3 and claimed.ready == 1
    first, second, third = claimed.jobs
    assert (first.seq, first.data, first.tag, first.meta) == (1, {"n": 0}, "t", {"m": 0})
    assert first.deliveries == 1 and first.lease_id.startswith("lease_")

    acked = client.ack(queue, first)
    assert (acked.counted, acked.skipped, acked.ready, acked.in_flight) == ([1], [], 1, 2)
    assert client.ack(queue, first).skipped == [1]
    nacked = client.nack(queue, second, delay_ms=60_000)
    assert (nacked.counted, nacked.ready, nacked.in_flight) == ([2], 1, 1)
    extended = client.extend(queue, [second, third], 120_000)
    assert extended.skipped == [2] and extended.deadlines[3] > third.deadline
    assert client.nack(queue, [third]).counted == [3]
    assert [job.deliveries for job in client.claim(queue, max=2).jobs] == [2, 1]


def test_a_stale_lease_is_left_alone(client: Client, queue: str) -> None:
    client.append(queue, [1], create=True)
    (stale,) = client.claim(queue).jobs
    client.nack(queue, stale)
    (fresh,) = client.claim(queue).jobs
    for settle in (client.ack, client.nack):
        assert settle(queue, stale).skipped == [1]
    assert client.extend(queue, stale, 1000).skipped == [1]
    assert client.ack(queue, [stale, fresh]).counted == [1]


def test_seqs_without_leases_go_by_node(client: Client, queue: str) -> None:
    client.append(queue, [1, 2], create=True)
    client.claim(queue, node="a", max=2)
    assert client.ack(queue, [1, 2], node="b").skipped == [1, 2]
    settled = client.ack(queue, [1, 1, 2], node="a")
    assert (settled.counted, settled.skipped) == ([1, 2], [1])
    assert client.ack(queue, []).counted == []


def test_each_client_has_a_name_of_its_own(
    opened: Opened, server: ServerProcess, client: Client, queue: str
) -> None:
    other = opened(server.base_url)
    client.append(queue, [1], create=True)
    client.claim(queue)
    assert other.node != client.node
    assert other.ack(queue, 1).skipped == [1]
    assert client.ack(queue, 1).counted == [1]


def test_a_queue_call_on_a_log_is_refused(client: Client, topic: str) -> None:
    client.put_topic(topic)
    with pytest.raises(errors.NotAQueue):
        client.claim(topic)
    with pytest.raises(errors.NotAQueue):
        next(client.work(topic))


def test_pushed_jobs_make_room_as_they_are_settled(client: Client, queue: str) -> None:
    client.append(queue, range(5), create=True)
    with closing(client.work(queue, max=2)) as stream:
        first, second = jobs_of(stream, 2)
        assert client.topic(queue).queue.in_flight == 2  # type: ignore[union-attr]
        client.ack(queue, first)
        (third,) = jobs_of(stream, 1)
        assert third.seq == 3
        assert client.ack(queue, [second, third]).counted == [2, 3]
    eventually(lambda: client.topic(queue).queue.ready == 2)  # type: ignore[union-attr]


# -- the server ----------------------------------------------------------------------------------


def test_the_server_says_how_it_is(client: Client) -> None:
    assert client.health().status == "ok"
    assert client.ready().wal_replay_complete
    assert client.metrics()["ready"]
    assert "# TYPE logqueue_" in client.metrics_text()


def test_keys(opened: Opened, fresh_server: FreshServer) -> None:
    server = fresh_server(API_KEYS="reader:read:a.,all", key="all")
    opened(server.base_url, "all").append("a.x", [1], create=True)
    reader = opened(server.base_url, "reader")
    assert reader.topic("a.x").count == 1
    with pytest.raises(errors.Forbidden):
        reader.append("a.x", [1], create=True)
    with pytest.raises(errors.Forbidden):
        reader.topic("b")
    for token in (None, "unknown"):
        with pytest.raises(errors.Unauthorized):
            opened(server.base_url, token).topics().__next__()


# -- the logs themselves -------------------------------------------------------------------------


def test_segments_and_seqs_by_time(client: Client, topic: str) -> None:
    client.append(topic, [1, 2, 3], create=True)
    state = client.topic(topic)
    page = client.segment_page(topics=[topic])
    *_, last = client.segments(topics=[topic])
    (part,) = last.topics
    assert (part.name, part.log_id, part.ranges[-1][1]) == (topic, state.log_id, 3)
    assert page.log_id == last.log_id == state.log_id.rpartition("-")[0]
    assert page.order > last.last_order
    data = client.segment(last.id, stop=last.bytes)
    assert crc32(data) == last.crc32
    assert client.segment(last.id, start=100, stop=200) == data[100:200]
    with pytest.raises(errors.SegmentNotFound):
        client.segment("jobs-123456")
    with pytest.raises(errors.RangeNotSatisfiable):
        client.segment(last.id, start=1 << 50)
    found = client.seq_at(topic, 0)
    assert (found.seq, found.previous_seq, found.head_seq) == (1, 0, 3)
    assert client.seq_at(topic, 1 << 60).seq == 4


# -- routers, watching, looking after jobs -------------------------------------------------------


def test_routers(client: Client, topic: str) -> None:
    name = f"{topic}a->b"
    made = client.put_router(name, topic + "a", topic + "b", filter="x*")
    assert made.created and made.filter == ["tag", "Glob", "x*"]
    client.append(topic + "a", [NewRecord(1, tag="x1"), NewRecord(2, tag="y")], create=True)
    assert [r.data for r in client.read(topic + "b") if isinstance(r, Record)] == [1]
    assert client.router(name).forwarded_total == 1
    assert [r.router for r in client.routers(source=topic + "a")] == [name]
    assert client.drop_router(name).deleted and not client.drop_router(name).deleted
    with pytest.raises(errors.RouterNotFound):
        client.router(name)


def test_watching(client: Client, topic: str) -> None:
    client.append(topic, [1, 2], create=True)
    with closing(client.watch(topic)) as frames:
        first = next(frames)
        assert isinstance(first, Records) and [r.data for r in first.records] == [1, 2]
        client.append(topic, [3], create=True)
        later = next(frame for frame in frames if isinstance(frame, Records))
        assert [r.data for r in later.records] == [3]
        client.drop_topic(topic)
        assert [f for f in frames if isinstance(f, TopicDeleted)] == [TopicDeleted(topic=topic)]


def test_the_life_cycle_of_jobs(client: Client, queue: str) -> None:
    client.patch_topic(queue, on_exhausted="hold")
    reply = client.append(
        queue, [NewRecord(n, key=f"k{n}", tag="t") for n in range(4)], create=True
    )
    assert reply.created_count == 4 and reply.results is not None
    kept = client.append(queue, [NewRecord(9, key="k0", on_conflict="keep")], create=True)
    assert kept.results is not None and kept.results[0].result == "kept"
    with pytest.raises(errors.KeyConflict):
        client.append(queue, [NewRecord(9, key="k0", on_conflict="reject")], create=True)
    (job,) = client.claim(queue).jobs
    assert job.key == "k0" and client.nack(queue, job, error="bad", count=False).counted == [1]
    assert client.job(queue, 1).job.last_error == "bad"
    assert [view.seq for view in client.jobs(queue, state="ready", data=False)] == [1, 2, 3, 4]
    assert client.cancel(queue, 2).cancelled and not client.cancel(queue, 2).cancelled
    assert client.cancel_key(queue, "k2").cancelled
    client.pause(queue)
    assert client.claim(queue).reason == "paused"
    client.resume(queue)
    (job,) = client.claim(queue).jobs
    assert client.reject(queue, job, error="no").counted == [1]
    assert client.release(queue, [1]).released == 1
    assert client.workers(queue)[0].node == client.node
    assert sum(client.purge(queue, ["ready"]).purged.values()) == 2


def test_dead_letters_go_back(client: Client, queue: str) -> None:
    client.put_topic(queue, type="queue", dead_letter=queue + "dead")
    client.append(queue, [1], create=True)
    client.reject(queue, client.claim(queue).jobs)
    assert client.redrive(queue + "dead", dry_run=True).redriven == 1
    assert client.redrive(queue + "dead").redriven == 1
    assert client.claim(queue).jobs[0].deliveries == 1


def test_epochs(client: Client, topic: str) -> None:
    name = topic + "a->b"
    with pytest.raises(errors.NotFound):
        client.producer(name)
    assert client.stage(name, 3, topic, [1, NewRecord(2, tag="t")], attempt="x").status == "staged"
    assert client.stage(name, 3, topic, [3], attempt="x", chunk=1).status == "staged"
    assert client.producer(name).staged.epochs == [3]
    with pytest.raises(errors.EpochConflict) as conflict:
        client.commit(name, 3, [EpochPart(chunks=2, rows=4, attempt="x")])
    assert conflict.value.detail is not None and conflict.value.detail["reason"] == "rows"
    for status in ("committed", "already"):
        done = client.commit(name, 3, [EpochPart(chunks=2, rows=3, attempt="x")])
        assert done.status == status and done.topics[0].count == 3
    assert client.producer(name).last_epoch == 3
    assert [r.data for r in client.read(topic) if isinstance(r, Record)] == [1, 2, 3]
    with pytest.raises(TypeError):
        client.stage(name, 4, topic, {"data": 1})


# -- the server itself ---------------------------------------------------------------------------


def test_the_state_of_the_server_its_log_level_and_a_backup(client: Client, topic: str) -> None:
    client.append(topic, ["kept"], create=True)
    state = client.server()
    assert state.phase == "ready" and state.records >= 1
    assert {log.log for log in state.logs} == {"jobs", "leases"}
    assert client.set_log_level("warning", for_ms=60_000).level == "warning"
    assert client.set_log_level("info").until is None
    with pytest.raises(errors.InvalidRequest):
        client.set_log_level("loud")  # type: ignore[arg-type]
    archive = b"".join(client.backup())
    assert b"/LOGS" in archive and b'"kept"' in archive
    parts = client.backup()
    next(parts)
    parts.close()
    eventually(lambda: client.server().backup is None)
    assert len(b"".join(client.backup())) >= len(archive)
