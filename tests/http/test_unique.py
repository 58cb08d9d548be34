"""Keys that a job has until it ends, over HTTP: `unique` and `on_duplicate`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.api import Api
from tests.http.expect import Json, ok, refused


@pytest.fixture
def queue(api: Api, topic: str) -> str:
    """A queue."""
    api.make_queue(topic)
    return topic


def write(api: Api, queue: str, data: object, **fields: Any) -> Any:
    return api.write(queue, [{"data": data, "key": "k", **fields}])


def result(body: Json) -> tuple[int, str]:
    (one,) = body["results"]
    return one["seq"], one["result"]


def test_one_job_while_it_waits_or_runs(api: Api, queue: str) -> None:
    assert result(ok(write(api, queue, 1, unique="running"))) == (1, "created")
    assert result(ok(write(api, queue, 2, unique="running"))) == (1, "replaced")
    (job,) = api.claimed(queue)
    assert job["data"] == 2
    for fields in ({}, {"on_duplicate": "replace"}, {"on_duplicate": "keep"}):
        assert result(ok(write(api, queue, 3, unique="running", **fields))) == (1, "kept")
    detail = {"key": "k", "seq": 1}
    reply = write(api, queue, 4, unique="running", on_duplicate="reject")
    refused(reply, 409, "key_conflict", detail)
    refused(write(api, queue, 4, on_conflict="reject"), 409, "key_conflict", detail)
    ok(api.ack(queue, [1]))
    assert result(ok(write(api, queue, 5, unique="waiting"))) == (2, "created")
    api.claimed(queue)
    assert result(ok(write(api, queue, 6))) == (3, "created")


def test_both_names_of_what_becomes_of_the_newcomer(api: Api, queue: str) -> None:
    ok(write(api, queue, 1))
    assert result(ok(write(api, queue, 2, on_duplicate="keep"))) == (1, "kept")
    both = {"on_duplicate": "keep", "on_conflict": "keep"}
    assert result(ok(write(api, queue, 2, **both))) == (1, "kept")
    reply = write(api, queue, 2, on_duplicate="keep", on_conflict="replace")
    refused(reply, 400, "invalid_request")
    assert "give one of them" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "record",
    [
        {"unique": "running"},
        {"key": "k", "unique": "always"},
        {"key": "k", "unique": 1},
        {"key": "k", "on_duplicate": "drop"},
    ],
)
def test_what_is_invalid(api: Api, queue: str, record: Json) -> None:
    refused(api.write(queue, [{"data": 1, **record}]), 400, "invalid_request")


def test_null_means_not_given(api: Api, queue: str) -> None:
    ok(api.write(queue, [{"data": 1, "unique": None, "on_duplicate": None}]))


def test_a_schedule_does_not_run_beside_its_last_run(api: Api, queue: str) -> None:
    record = {"data": 1, "key": "s", "unique": "running", "on_duplicate": "keep"}
    body = {"topic": queue, "every_ms": 3_600_000, "record": record}
    ok(api.json("PUT", f"/v0/schedules/{queue}", body), 201)
    run = f"/v0/schedules/{queue}/run"
    assert ok(api.send("POST", run))["result"] == "created"
    api.claimed(queue)
    ran = ok(api.send("POST", run))
    assert (ran["result"], ran["seq"]) == ("kept", 1)
    ok(api.ack(queue, [1]))
    assert ok(api.send("POST", run))["seq"] == 2
