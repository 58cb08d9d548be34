"""The archive: a copy of every job that ends, in one unit with its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.http.api import Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, now_ms, ok, refused

RECORD: Json = {"data": {"a": 1}, "tag": "t", "meta": {"m": 1}, "key": "k"}


def archived(api: Api, topic: str, **config: Any) -> tuple[str, str]:
    """A queue with an archive that does not exist yet."""
    queue, done = f"{topic}q", f"{topic}done"
    api.make_queue(queue, archive=done, **config)
    return queue, done


def copies(api: Api, done: str) -> list[Json]:
    """What the archive holds, once there is something."""
    return eventually(lambda: api.read(done, include_tags=True))


ENDS: dict[str, tuple[str, Json, Callable[[Api, str], Any]]] = {
    "ack": ("acked", {}, lambda api, q: (api.claimed(q), ok(api.ack(q, [1])))),
    "reject": ("rejected", {}, lambda api, q: (api.claimed(q), ok(api.reject(q, [1])))),
    "exhausted": (
        "dropped",
        {"max_deliveries": 1, "on_exhausted": "drop"},
        lambda api, q: (api.claimed(q), ok(api.nack(q, [1])), api.claimed(q)),
    ),
    "cap": (
        "dropped", {"cap_records": 1}, lambda api, q: api.append(q, "newer")
    ),
    "ttl": (
        "expired",
        {"ttl_ms": 20},
        lambda api, q: eventually(lambda: api.facts(q, "count") == (0,)),
    ),
    "superseded": (
        "superseded",
        {},
        lambda api, q: (
            api.claimed(q), ok(api.write(q, [{**RECORD, "data": "new"}])), ok(api.nack(q, [1])),
            eventually(lambda: api.facts(q, "superseded") == (1,)),
        ),
    ),
    "cancel": ("cancelled", {}, lambda api, q: ok(api.cancel(q, 1))),
    "cancel by key": ("cancelled", {}, lambda api, q: ok(api.cancel_key(q, "k"))),
    "forced cancel": (
        "cancelled", {}, lambda api, q: (api.claimed(q), ok(api.cancel(q, 1, force="true")))
    ),
    "purge": ("cancelled", {}, lambda api, q: ok(api.post(q, "purge", states=["ready"]))),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_every_end_leaves_a_copy(api: Api, topic: str, end: str) -> None:
    """Data, tag and meta as they were, and how it ended."""
    outcome, config, act = ENDS[end]
    queue, done = archived(api, topic, **config)
    before = now_ms()
    ok(api.write(queue, [RECORD]))
    act(api, queue)
    [copy] = copies(api, done)
    assert (copy["data"], copy["$tag"], copy["meta"]["m"]) == ({"a": 1}, "t", 1)
    stamps = copy["meta"]
    assert stamps["$outcome"] == outcome
    assert stamps["$archived_from"] == queue
    assert str(stamps["$archived_src_seq"]) == "1"
    claimed = end in ("ack", "reject", "exhausted", "superseded", "forced cancel")
    assert str(stamps["$deliveries"]) == str(int(claimed))
    enqueued, finished = int(stamps["$enqueued_at"]), int(stamps["$finished_at"])
    assert before - 1 <= enqueued <= finished <= now_ms() + 1
    if end in ("ack", "reject"):
        assert stamps["$finished_by"] == "w"
    assert api.facts(queue, "count", outcome)[0] == int(end in ("superseded", "cap"))
    assert api.facts(queue, outcome) == (1,)


def test_the_archive_is_an_ordinary_log(api: Api, topic: str) -> None:
    """Created on demand, read with diff, bounded by its own caps."""
    queue, done = archived(api, topic)
    refused(api.state(done), 404, "topic_not_found")
    ok(api.write(queue, numbered(5)))
    api.claimed(queue, max=5)
    ok(api.ack(queue, [1, 2, 3]))
    assert ok(api.state(done))["type"] == "log"
    assert [record["data"] for record in api.read(done)] == [0, 1, 2]
    ok(api.patch(done, cap_records=2))
    ok(api.ack(queue, [4]))
    assert [record["data"] for record in api.read(done)] == [2, 3]


def test_a_reader_of_the_archive_is_woken(api: Api, topic: str) -> None:
    """Follow it as any log."""
    queue, done = archived(api, topic)
    api.make_log(done)
    api.append(queue, 1)
    api.claimed(queue)
    ok(api.ack(queue, [1]))
    assert ok(api.diff(done, wait_ms=8000))["records"][0]["data"] == 1


def test_a_dead_letter_is_no_end(api: Api, topic: str) -> None:
    """It lives on elsewhere, so there is no copy of it."""
    queue, done = archived(api, topic, dead_letter=f"{topic}dead")
    api.append(queue, 1, 2)
    api.claimed(queue, max=2)
    ok(api.reject(queue, [1]))
    ok(api.ack(queue, [2]))
    assert [record["data"] for record in copies(api, done)] == [2]


def test_meta_that_is_no_object(api: Api, topic: str) -> None:
    """It is kept beside the stamps."""
    queue, done = archived(api, topic)
    ok(api.write(queue, [{"data": 1, "meta": "text"}, {"data": 2}]))
    api.claimed(queue, max=2)
    ok(api.ack(queue, [1, 2]))
    first, second = copies(api, done)
    assert "text" in first["meta"].values()
    assert second["meta"]["$outcome"] == "acked"


def test_what_a_worker_acks_twice_is_there_once(api: Api, topic: str) -> None:
    """One copy per job."""
    queue, done = archived(api, topic)
    api.append(queue, 1)
    api.claimed(queue)
    ok(api.ack(queue, [1, 1]))
    ok(api.ack(queue, [1]))
    assert len(copies(api, done)) == 1


def test_an_archive_without_room(api: Api, topic: str) -> None:
    """Never the end without the copy: the ack is refused, the lease goes on, and it works later."""
    queue, done = archived(api, topic)
    api.make_log(done, cap_records=1, discard="reject")
    api.append(queue, 1, 2)
    api.claimed(queue, max=2)
    ok(api.ack(queue, [1]))
    detail = refused(api.ack(queue, [2]), 422, "topic_full")
    assert detail["topic"] == done
    assert api.facts(queue, "count", "in_flight", "acked") == (1, 1, 1)
    ok(api.delete(done, before_seq=10))
    assert ok(api.ack(queue, [2]))["acked"] == 1
    assert [record["data"] for record in api.read(done)] == [2]


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_copy_and_end_are_one_unit(
    fresh_server: FreshServer, api_for: ApiFor, durability: str
) -> None:
    """After kill -9 each job is in exactly one of both topics."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", archive="done", durability=durability)
    api.make_log("done", durability=durability)
    ok(api.write("q", numbered(60)))
    acked: list[int] = []
    for job in api.claimed("q", max=40):
        ok(api.ack("q", [job["$seq"]]))
        acked.append(job["data"])
    server.kill()
    server.start()
    api = api_for(server)
    left = [record["data"] for record in api.read("q")]
    done = [record["data"] for record in api.read("done")]
    assert sorted(left + done) == list(range(60))
    assert set(acked) <= set(done)
