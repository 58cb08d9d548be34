"""What became of jobs: results, status, progress, and waiting for ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http.api import Api, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, refused


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for calls that wait."""
    with ThreadPoolExecutor(8) as started:
        yield started


@pytest.fixture
def queue(api: Api, topic: str) -> str:
    """A queue that keeps results."""
    api.make_queue(topic, results={})
    return topic


def statuses(api: Api, queue: str, *seqs: int, **fields: Any) -> list[Json]:
    """What some jobs are or have become."""
    found: list[Json] = ok(api.post(queue, "jobs/status", seqs=[*seqs], **fields))["jobs"]
    return found


def states(api: Api, queue: str, *seqs: int) -> list[str]:
    """The same, in one word each."""
    return [job["state"] for job in statuses(api, queue, *seqs)]


def shown(api: Api, queue: str, seq: int, **query: Any) -> Json:
    """One job."""
    job: Json = ok(api.job(queue, seq, **query))["job"]
    return job


# -- the config ----------------------------------------------------------------------------------


def test_a_config_without_results_looks_as_before(api: Api, topic: str) -> None:
    """Neither the config nor its version shows a field that is not used."""
    api.make_queue(topic)
    before = ok(api.state(topic))
    assert "results" not in before["config"]
    patched = ok(api.patch(topic, results={"keep_ms": 5000}))
    assert patched["config"]["results"] == {"keep_ms": 5000, "max_bytes": 16 << 20}
    assert patched["config_version"] != before["config_version"]
    patched = ok(api.patch(topic, results={"keep_ms": 10**15, "max_bytes": 10**15}))
    assert patched["config"]["results"] == {"keep_ms": 30 * 86_400_000, "max_bytes": 1 << 30}
    assert ok(api.patch(topic, results=None))["config_version"] == before["config_version"]
    refused(api.patch(topic, results={"keep_ms": -1}), 400, "invalid_request")
    refused(api.patch(topic, results=7), 400, "invalid_request")


# -- what is kept --------------------------------------------------------------------------------


def test_results_of_acks(api: Api, queue: str) -> None:
    """A result for each job, any JSON; null is none."""
    api.append(queue, *"abcd")
    assert seqs_of(api.claimed(queue, max=4)) == [1, 2, 3, 4]
    results = [{"x": [1, 2.5, "ä"]}, None, 0, False]
    body = ok(api.post(queue, "ack", node="w", seqs=[1, 2, 3, 4], results=results))
    assert (body["acked"], body["skipped"]) == (4, [])
    jobs = statuses(api, queue, 4, 3, 2, 1, 1)
    assert [job["$seq"] for job in jobs] == [4, 3, 2, 1]
    assert [job.get("result", "none") for job in jobs] == [False, 0, "none", {"x": [1, 2.5, "ä"]}]
    job = shown(api, queue, 1)
    assert (job["state"], job["outcome"], job["node"]) == ("done", "acked", "w")
    assert set(job) == {"$seq", "state", "outcome", "ended_at", "node", "result"}


def test_what_an_ack_does_not_settle_has_no_result(api: Api, queue: str) -> None:
    """The results go with the seqs, also where some are skipped or named twice."""
    api.append(queue, *"abc")
    api.claimed(queue, max=2)
    lease = api.claimed(queue, "v")[0]["lease_id"]
    body = ok(api.post(queue, "ack", node="w", seqs=[3, 1, 2, 1], results=["no", "a", "b", "c"]))
    assert (body["acked"], body["skipped"]) == (2, [3, 1])
    ok(api.post(queue, "ack", node="v", seqs=[3, 3], lease_ids=["lease_1", lease],
                results=["wrong", "right"]))  # fmt: skip
    assert [job["result"] for job in statuses(api, queue, 1, 2, 3)] == ["a", "b", "right"]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([1], "invalid_request"),
        ([1, 2, 3], "invalid_request"),
        ("x", "invalid_request"),
        ({"1": 2}, "invalid_request"),
        ([1, "x" * (64 << 10)], "record_too_large"),
    ],
)
def test_bad_results_leave_the_jobs_leased(api: Api, queue: str, results: Any, code: str) -> None:
    """Nothing is settled by an ack that is refused."""
    api.append(queue, *"ab")
    api.claimed(queue, max=2)
    refused(api.post(queue, "ack", node="w", seqs=[1, 2], results=results), 400, code)
    assert states(api, queue, 1, 2) == ["in_flight", "in_flight"]
    largest = "x" * ((64 << 10) - 2)
    assert ok(api.post(queue, "ack", node="w", seqs=[1], results=[largest]))["acked"] == 1
    assert shown(api, queue, 1)["result"] == largest


def test_every_way_to_end(api: Api, queue: str) -> None:
    """The state says how; a reject brings its error."""
    api.append(queue, *"abcdef")
    api.claimed(queue, max=2)
    ok(api.ack(queue, [1]))
    ok(api.reject(queue, [2], error="no such user"))
    ok(api.cancel(queue, 3))
    ok(api.write(queue, [{"data": 7, "ttl_ms": 1}]))
    eventually(lambda: states(api, queue, 7) == ["expired"])
    ok(api.patch(queue, dead_letter=queue + ".dead", max_deliveries=1, cap_records=2))
    assert seqs_of(api.claimed(queue)) == [5]
    ok(api.nack(queue, [5], error="again"))
    assert seqs_of(api.claimed(queue)) == [6]
    found = states(api, queue, 1, 2, 3, 4, 5, 6, 7)
    assert found == ["done", "dead", "cancelled", "dropped", "dead", "in_flight", "expired"]
    assert states(api, queue, 8, 0) == ["unknown", "unknown"]
    assert shown(api, queue, 2)["error"] == "no such user"
    dead = shown(api, queue, 5)
    assert (dead["outcome"], dead["reason"], dead["error"]) == (
        "dead_lettered", "max_deliveries", "again",
    )  # fmt: skip
    refused(api.job(queue, 8), 404, "not_found")
    refused(api.job(queue, 0), 404, "not_found")


def test_gone_is_not_the_same_as_never_there(api: Api, topic: str) -> None:
    """A job whose end is no longer kept has existed."""
    api.make_queue(topic, results={"max_bytes": 600})
    api.append(topic, *"abc")
    api.claimed(topic, max=3)
    for seq in (1, 2, 3):
        ok(api.ack(topic, [seq]))
    assert states(api, topic, 1, 2, 3, 4) == ["gone", "done", "done", "unknown"]
    assert shown(api, topic, 1) == {"$seq": 1, "state": "gone"}
    text = api.send("GET", "/v0/metrics").text
    evicted = next(t for t in text.splitlines() if t.startswith("logqueue_results_evicted_total"))
    assert float(evicted.split()[1]) >= 1
    ok(api.patch(topic, results=None))
    refused(api.job(topic, 2), 404, "not_found")
    assert states(api, topic, 2) == ["gone"]


def test_an_ended_job_with_its_history(api: Api, queue: str) -> None:
    """What the logs tell, in the words of a queue with results; other queues keep theirs."""
    api.append(queue, "a")
    api.claimed(queue)
    ok(api.post(queue, "ack", node="w", seqs=[1], results=[7]))
    body = ok(api.job(queue, 1, ended="true"))
    assert (body["job"]["state"], body["job"]["outcome"]) == ("done", "acked")
    assert (body["job"]["data"], body["job"]["result"]) == ("a", 7)
    assert [step["event"] for step in body["timeline"]] == ["appended", "claimed", "acked"]
    ok(api.patch(queue, results=None))
    assert shown(api, queue, 1, ended="true")["state"] == "acked"
    ok(api.patch(queue, results={}))
    forgotten = shown(api, queue, 1, ended="true")
    assert (forgotten["state"], forgotten["outcome"]) == ("done", "acked")
    assert "result" not in forgotten


def test_a_queue_without_results_answers_as_ever(api: Api, topic: str) -> None:
    """404, whatever the ack brought."""
    api.make_queue(topic)
    api.append(topic, "a")
    api.claimed(topic)
    assert ok(api.post(topic, "ack", node="w", seqs=[1], results=[7]))["acked"] == 1
    refused(api.job(topic, 1), 404, "not_found")
    refused(api.job(topic, 1, wait_ms=1000), 404, "not_found")


# -- waiting -------------------------------------------------------------------------------------


def in_background(
    pool: ThreadPoolExecutor, api: Api, queue: str, *seqs: int, **fields: Any
) -> Future[httpx.Response]:
    """A status call that waits."""
    fields = {"seqs": [*seqs], "wait_ms": 30_000, **fields}
    return pool.submit(lambda: api.post(queue, "jobs/status", **fields))


def test_waiting_for_one(api: Api, queue: str, pool: ThreadPoolExecutor) -> None:
    """The reply comes with the end; of a job that has ended at once."""
    api.append(queue, "a")
    api.claimed(queue)
    call = pool.submit(api.job, queue, 1, wait_ms=30_000, timeline="false")
    ok(api.post(queue, "ack", node="w", seqs=[1], results=["r"]))
    assert ok(call.result(30))["job"]["result"] == "r"
    assert shown(api, queue, 1, wait_ms=30_000)["result"] == "r"
    api.append(queue, "b")
    assert shown(api, queue, 2, wait_ms=1)["state"] == "ready"


def test_waiting_for_all_and_for_any(api: Api, queue: str, pool: ThreadPoolExecutor) -> None:
    """In whatever order they end."""
    api.append(queue, *"abc")
    api.claimed(queue, max=3)
    every = in_background(pool, api, queue, 1, 2, 3)
    any_of = in_background(pool, api, queue, 1, 2, 3, until="any")
    ok(api.ack(queue, [2]))
    found = [job["state"] for job in ok(any_of.result(30))["jobs"]]
    assert found == ["in_flight", "done", "in_flight"]
    ok(api.ack(queue, [3]))
    assert not every.done()
    ok(api.reject(queue, [1]))
    assert [job["state"] for job in ok(every.result(30))["jobs"]] == ["dead", "done", "done"]
    assert states(api, queue, 99) == ["unknown"]
    assert ok(in_background(pool, api, queue, 1, 99).result(30))["jobs"][1]["state"] == "unknown"


@pytest.mark.parametrize("way", ["delete", "cap", "drop"])
def test_what_ends_a_wait(api: Api, queue: str, pool: ThreadPoolExecutor, way: str) -> None:
    """Ends without a worker, and the end of the queue."""
    api.append(queue, *"ab")
    call = in_background(pool, api, queue, 1)
    if way == "delete":
        ok(api.post(queue, "delete", before_seq=2))
    elif way == "cap":
        ok(api.patch(queue, cap_records=1))
    else:
        ok(api.delete_topic(queue))
        refused(call.result(30), 404, "topic_not_found")
        return
    (job,) = ok(call.result(30))["jobs"]
    assert job["state"] == ("cancelled" if way == "delete" else "dropped")


def test_bad_status_calls(api: Api, queue: str) -> None:
    """Each says what is wrong."""
    for fields in ({}, {"seqs": 1}, {"seqs": ["1"]}, {"seqs": [1], "until": "some"}):
        refused(api.post(queue, "jobs/status", **fields), 400, "invalid_request")
    refused(api.post(queue, "jobs/status", seqs=[1] * 1001), 400, "batch_too_large")
    refused(api.job(queue, 1, wait_ms="soon"), 400, "invalid_request")
    assert statuses(api, queue) == []


def test_a_reply_with_many_results_ends_early(api: Api, queue: str) -> None:
    """The other seqs are named, so that nothing is lost."""
    count = 80
    api.append(queue, *range(count))
    api.claimed(queue, max=count)
    for start in range(1, count + 1, 10):
        seqs = [*range(start, start + 10)]
        results = ["x" * 65_000] * 10
        ok(api.post(queue, "ack", node="w", seqs=seqs, results=results))
    wanted = [*range(1, count + 1)]
    body = ok(api.post(queue, "jobs/status", seqs=wanted))
    assert seqs_of(body["jobs"]) + body["rest"] == wanted
    assert body["rest"] and len(body["jobs"]) > 10
    assert ok(api.post(queue, "jobs/status", seqs=body["rest"]))["jobs"]


# -- progress ------------------------------------------------------------------------------------


def test_progress(api: Api, topic: str) -> None:
    """Shown wherever the job is, until the lease ends."""
    api.make_queue(topic)
    api.append(topic, *"ab")
    api.claimed(topic, max=2)
    before = shown(api, topic, 1)
    assert "progress" not in before and "note" not in before
    ok(api.extend(topic, [1], lease_ms=60_000, progress=0.5, note="half"))
    ok(api.extend(topic, [1], lease_ms=60_000))
    for job in (shown(api, topic, 1), ok(api.jobs(topic))["jobs"][0], statuses(api, topic, 1)[0]):
        assert (job["progress"], job["note"]) == (0.5, "half")
    (worker,) = ok(api.send("GET", f"/v0/workers?topic={topic}"))["workers"]
    in_hand = {job["$seq"]: job for job in worker["jobs"]}
    assert (in_hand[1]["progress"], in_hand[1]["note"]) == (0.5, "half")
    assert "progress" not in in_hand[2]
    ok(api.extend(topic, [1], lease_ms=60_000, progress=1, note=""))
    job = shown(api, topic, 1)
    assert job["progress"] == 1 and "note" not in job
    assert "progress" not in shown(api, topic, 2)
    ok(api.nack(topic, [1]))
    assert "progress" not in shown(api, topic, 1)
    api.claimed(topic)
    assert "progress" not in shown(api, topic, 1)


@pytest.mark.parametrize(
    "fields",
    [{"progress": 1.01}, {"progress": -1}, {"progress": "1"}, {"note": "ä" * 129}, {"note": 7}],
)
def test_bad_progress(api: Api, queue: str, fields: Json) -> None:
    """The lease stays as it was."""
    api.append(queue, "a")
    api.claimed(queue)
    deadline = shown(api, queue, 1)["deadline"]
    refused(api.extend(queue, [1], lease_ms=600_000, **fields), 400, "invalid_request")
    assert shown(api, queue, 1)["deadline"] == deadline


# -- restarts ------------------------------------------------------------------------------------


def test_results_survive_a_kill(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """What a reply has shown is still there."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", results={}, durability="fsync", leases_durable=True)
    api.append("q", *"abc")
    api.claimed("q", max=3)
    ok(api.post("q", "ack", node="w", seqs=[1], results=[{"big": "x" * 1000}]))
    ok(api.reject("q", [2], error="bad"))
    ok(api.extend("q", [3], lease_ms=600_000, progress=0.25, note="n"))
    before = statuses(api, "q", 1, 2)
    for stop in ("kill", "terminate"):
        getattr(server, stop)()
        server.start()
        api = api_for(server)
        assert statuses(api, "q", 1, 2) == before
        if stop == "terminate":
            assert shown(api, "q", 3)["progress"] == 0.25
