"""Batches of jobs over HTTP: what replies say, how long polls wait, what is refused."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.http.api import Api
from tests.http.expect import Json, eventually, ok, refused

CALLBACK = {"topic": "t", "record": {"data": 1}}


def open_batch(api: Api, **body: Any) -> httpx.Response:
    """Open a batch."""
    return api.json("POST", "/v0/batches", body)


def close(api: Api, name: str) -> Json:
    """Close one."""
    return ok(api.send("POST", f"/v0/batches/{name}/close"))


def look(api: Api, name: str, query: str = "") -> Json:
    """What one is now."""
    return ok(api.send("GET", f"/v0/batches/{name}{query}"))


def callback(queue: str, *data: object) -> Json:
    """A callback."""
    return {"topic": f"{queue}.over", "record": {"data": [*data], "meta": {"a": 1}}}


def test_a_batch_from_end_to_end(api: Api, queue: str) -> None:
    """Opened, joined, worked off, closed; its callback comes with the counts."""
    name = f"{queue}.batch"
    made = ok(open_batch(api, name=name, on_done=callback(queue, 1, 2)), 201)
    assert made["created"] and made["on_done"] == callback(queue, 1, 2)
    assert (made["state"], made["joined"], made["left"]) == ("open", 0, 0)
    assert ok(open_batch(api, name=name, on_done=callback(queue, 1, 2)))["created"] is False
    ok(api.write(queue, [{"data": n, "batch": name} for n in range(3)]))
    jobs = api.claimed(queue, max=3)
    assert [job["batch"] for job in jobs] == [name] * 3
    ok(api.ack(queue, [1]))
    ok(api.reject(queue, [2]))
    assert close(api, name)["state"] == "closed"
    found = look(api, name)
    counts = {member: found[member] for member in ("joined", "done", "failed", "left")}
    assert counts == {"joined": 3, "done": 1, "failed": 1, "left": 1}
    ok(api.ack(queue, [3]))
    assert look(api, name, "?wait_ms=20000")["state"] == "ended"
    (job,) = api.claimed(f"{queue}.over", max=9)
    told = {"batch": name, "joined": 3, "done": 2, "failed": 1}
    assert (job["data"], job["meta"]) == ([1, 2], {"a": 1, "$batch": told})
    listed = ok(api.send("GET", f"/v0/batches?prefix={name}"))["batches"]
    assert [entry["batch"] for entry in listed] == [name] and "on_done" not in listed[0]
    assert ok(api.send("DELETE", f"/v0/batches/{name}"))["deleted"] is True
    refused(api.send("GET", f"/v0/batches/{name}"), 404, "batch_not_found", {"batch": name})


def test_who_waits_is_answered_at_the_end(api: Api, queue: str) -> None:
    """Not before, and at once when the batch goes."""
    name = f"{queue}.batch"
    ok(open_batch(api, name=name), 201)
    ok(api.write(queue, [{"data": 1, "batch": name}]))
    close(api, name)
    assert look(api, name, "?wait_ms=1")["state"] == "closed"
    found: list[Json] = []
    waiting = threading.Thread(target=lambda: found.append(look(api, name, "?wait_ms=30000")))
    waiting.start()
    api.claimed(queue)
    ok(api.ack(queue, [1]))
    waiting.join(20)
    assert found[0]["state"] == "ended" and found[0]["done"] == 1


def test_a_batch_without_a_name_gets_one(api: Api) -> None:
    """The server's."""
    made = ok(open_batch(api), 201)
    assert look(api, made["batch"])["state"] == "open"
    assert ok(open_batch(api), 201)["batch"] != made["batch"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "a b"}, 400, "invalid_request"),
        ({"name": ""}, 400, "invalid_request"),
        ({"on_done": {"topic": "t"}}, 400, "invalid_request"),
        ({"on_done": {"topic": "a b", "record": {"data": 1}}}, 400, "invalid_request"),
        ({"on_done": {"topic": "t", "record": {"data": 1, "key": "k"}}}, 400, "invalid_request"),
        ({"name": "x", "on_done": {"topic": "t", "record": {"data": 1, "batch": "x"}}}, 400,
         "invalid_request"),
        ({"on_problem": {"topic": "t", "record": {"data": "x" * 16_385}}}, 400,
         "record_too_large"),
        ({"on_done": {"topic": "t", "record": {"data": 1, "then": [CALLBACK] * 33}}}, 400,
         "invalid_request"),
    ],
)  # fmt: skip
def test_what_a_batch_cannot_be(api: Api, body: Json, status: int, code: str) -> None:
    """The documented refusals."""
    refused(open_batch(api, **body), status, code)


def test_jobs_of_batches_that_take_none(api: Api, queue: str) -> None:
    """Nothing is written; an ack that writes leaves its jobs leased."""
    name = f"{queue}.batch"
    record = {"data": 1, "batch": name}
    refused(api.write(queue, [record]), 404, "batch_not_found", {"batch": name})
    ok(open_batch(api, name=name), 201)
    close(api, name)
    eventually(lambda: look(api, name)["state"] == "ended")
    refused(api.write(queue, [{"data": 0}, record]), 409, "batch_closed", {"batch": name})
    refused(open_batch(api, name=name), 409, "batch_exists", {"batch": name})
    api.append(queue, 1)
    api.claimed(queue)
    append = [{"topic": queue, "records": [record]}]
    refused(api.ack(queue, [1], append=append), 409, "batch_closed")
    assert api.facts(queue, "in_flight", "head_seq") == (1, 1)
    body = {"topic": queue, "records": [record]}
    refused(api.json("POST", f"/v0/producers/{queue}/epochs/1/stage", body), 400, "invalid_request")
