"""Looking at jobs, cancelling, purging, releasing, and who works on a queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered, seqs_of
from tests.http.expect import Json, eventually, now_ms, ok, refused

STATES = ["ready", "delayed", "in_flight", "held"]


@pytest.fixture
def mixed(api: Api, topic: str) -> str:
    """A queue with two jobs in each state; seqs 1 and 2 are held, and so on."""
    api.make_queue(topic, on_exhausted="hold")
    records: list[Json] = [{"data": n, "tag": f"t{n % 2}"} for n in range(6)]
    records += [{"data": n, "delay_ms": 60_000, "key": f"k{n}"} for n in (6, 7)]
    ok(api.write(topic, records))
    assert seqs_of(api.claimed(topic, max=4)) == [1, 2, 3, 4]
    ok(api.reject(topic, [1, 2], error="bad"))
    return topic


STATE_OF = {1: "held", 2: "held", 3: "in_flight", 4: "in_flight", 5: "ready", 6: "ready",
            7: "delayed", 8: "delayed"}  # fmt: skip


def listed(api: Api, queue: str, **query: Any) -> list[int]:
    """Seqs of a page of jobs."""
    return seqs_of(ok(api.jobs(queue, **query))["jobs"])


# -- the list ------------------------------------------------------------------------------------


def test_the_invariant(api: Api, mixed: str) -> None:
    """ready + in_flight + delayed + held == count."""
    assert api.facts(mixed, *STATES) == (2, 2, 2, 2)
    assert api.facts(mixed, "count") == (8,)


def test_a_listed_job(api: Api, mixed: str) -> None:
    """All that is known, and only what there is."""
    body = ok(api.jobs(mixed))
    assert set(body) == {"topic", "jobs", "scanned", "performance"}
    assert (body["topic"], body["scanned"]) == (mixed, 8)
    jobs = {job["$seq"]: job for job in body["jobs"]}
    assert {seq: job["state"] for seq, job in jobs.items()} == STATE_OF
    always = {"$seq", "$ts", "state", "deliveries", "age_ms", "data"}
    assert set(jobs[5]) == always | {"$tag"}
    assert set(jobs[1]) == always | {"$tag", "last_error"}
    assert set(jobs[3]) == always | {"$tag", "node", "deadline"}
    assert set(jobs[7]) == always | {"$key", "not_before"}
    assert (jobs[3]["node"], jobs[3]["deliveries"], jobs[5]["deliveries"]) == ("w", 1, 0)
    assert now_ms() < jobs[3]["deadline"] <= now_ms() + 30_000
    assert now_ms() < jobs[7]["not_before"] <= now_ms() + 60_000
    assert 0 <= jobs[5]["age_ms"] < 60_000
    assert (jobs[1]["last_error"], jobs[8]["$key"], jobs[5]["data"]) == ("bad", "k7", 4)


def test_expiry_is_shown(api: Api, topic: str) -> None:
    """The shorter of the two lives."""
    api.make_queue(topic, ttl_ms=60_000)
    ok(api.write(topic, [{"data": 1}, {"data": 2, "ttl_ms": 30_000}]))
    first, second = ok(api.jobs(topic))["jobs"]
    assert first["expires_at"] - first["$ts"] == 60_000
    assert second["expires_at"] - second["$ts"] == 30_000


def test_looking_changes_nothing(api: Api, mixed: str) -> None:
    """Neither a lease nor a delivery."""
    for _ in range(3):
        ok(api.jobs(mixed))
        ok(api.job(mixed, 5))
    assert seqs_of(api.claimed(mixed)) == [5]
    assert ok(api.job(mixed, 5))["job"]["deliveries"] == 1


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"state": "ready"}, [5, 6]),
        ({"state": "delayed"}, [7, 8]),
        ({"state": "in_flight"}, [3, 4]),
        ({"state": "held"}, [1, 2]),
        ({"state": "held,ready"}, [1, 2, 5, 6]),
        ({"state": ""}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"tag": "t1"}, [2, 4, 6]),
        ({"tag": "t*"}, [1, 2, 3, 4, 5, 6]),
        ({"tag": "x"}, []),
        ({"key": "k6"}, [7]),
        ({"key": "none"}, []),
        ({"after": 5}, [6, 7, 8]),
        ({"after": 2**64 - 1}, []),
        ({"state": "ready", "tag": "t0", "after": 4}, [5]),
        ({"limit": 3}, [1, 2, 3]),
        ({"limit": 0}, [1]),
        ({"limit": 2**32 - 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"unknown": 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_filters(api: Api, mixed: str, query: Json, seqs: list[int]) -> None:
    """They add up."""
    assert listed(api, mixed, **query) == seqs


@pytest.mark.parametrize(
    "query",
    [
        {"state": "Ready"}, {"state": "acked"}, {"state": "ready,x"},
        {"after": "x"}, {"after": -1}, {"after": 2**64}, {"after": "1.0"}, {"after": ""},
        {"limit": "x"}, {"limit": -1}, {"limit": 2**32}, {"limit": ""},
    ],
)  # fmt: skip
def test_bad_filters(api: Api, mixed: str, query: Json) -> None:
    """400, never a silent default."""
    refused(api.jobs(mixed, **query), 400, "invalid_request", None)


def test_pages(api: Api, queue: str) -> None:
    """next_after leads through all of them, once each."""
    ok(api.write(queue, numbered(25)))
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        body = ok(api.jobs(queue, after=after, limit=10))
        assert body["scanned"] >= len(body["jobs"])
        seen += seqs_of(body["jobs"])
        after = body.get("next_after")
    assert seen == list(range(1, 26))


def test_a_page_scans_a_bounded_number(api: Api, queue: str) -> None:
    """A filter that nothing passes ends the page, not the server."""
    for _ in range(3):
        ok(api.write(queue, numbered(10_000)))
    body = ok(api.jobs(queue, text="none", min_age_ms=0))
    assert body["jobs"] == []
    assert body["scanned"] == 30_000 and "next_after" not in body
    assert ok(api.jobs(queue, key="none"))["scanned"] == 0, "no job here has a key"


def test_without_data(api: Api, mixed: str) -> None:
    """For large payloads."""
    for job in ok(api.jobs(mixed, data="false"))["jobs"]:
        assert not {"data", "meta"} & set(job)


# -- one job -------------------------------------------------------------------------------------


def test_the_history_of_a_job(api: Api, queue: str) -> None:
    """Who had it, when it came back and why."""
    api.append(queue, 1)
    [first] = api.claimed(queue, "a")
    ok(api.extend(queue, [1], "a"))
    ok(api.nack(queue, [1], "a", error="no", delay_ms=10))
    [second] = api.claimed(queue, "b", wait_ms=8000)
    body = ok(api.job(queue, 1))
    assert set(body) == {
        "topic", "job", "why", "history", "history_complete", "timeline", "timeline_complete",
        "performance",
    }  # fmt: skip
    assert (body["topic"], body["history_complete"]) == (queue, True)
    assert (body["job"]["state"], body["job"]["node"]) == ("in_flight", "b")
    events = [entry["event"] for entry in body["history"]]
    assert events == ["claimed", "extended", "nack", "claimed"]
    claimed, extended, nacked, again = body["history"]
    assert (claimed["node"], claimed["lease_id"]) == ("a", first["lease_id"])
    assert (claimed["deadline"], extended["node"]) == (first["deadline"], "a")
    assert (nacked["error"], nacked["not_before"] - nacked["at"]) == ("no", 10)
    assert (again["node"], again["lease_id"]) == ("b", second["lease_id"])
    times = [entry["at"] for entry in body["history"]]
    assert times == sorted(times)
    assert body["why"]["code"] == "in_flight"
    assert body["why"]["text"].startswith("In flight: b has had it for ")
    assert body["timeline_complete"] is True
    assert body["timeline"] == [{"at": body["job"]["$ts"], "event": "appended"}, *body["history"]]


def test_the_history_of_a_fresh_job(api: Api, queue: str) -> None:
    """Nothing has happened yet."""
    api.append(queue, {"a": 1}, 2)
    api.claimed(queue)
    body = ok(api.job(queue, 2))
    assert (body["history"], body["history_complete"]) == ([], True)
    assert ok(api.job(queue, 1))["job"]["data"] == {"a": 1}


def test_a_job_that_has_ended_is_still_explained(api: Api, queue: str) -> None:
    """What became of it, by whom, and where its copy is."""
    ok(api.patch(queue, archive=f"{queue}.done", dead_letter=f"{queue}.dead"))
    api.append(queue, {"a": 1}, {"b": 2})
    api.claimed(queue, "w", max=2)
    ok(api.ack(queue, [1], "w"))
    ok(api.reject(queue, [2], "w", error="bad"))
    refused(api.job(queue, 1), 404, "not_found", {"topic": queue, "seq": 1})
    done = ok(api.job(queue, 1, ended="true"))
    assert (done["job"]["state"], done["job"]["data"]) == ("acked", {"a": 1})
    assert done["copy"] == {"topic": f"{queue}.done", "seq": 1, "exists": True}
    assert [step["event"] for step in done["timeline"]] == ["appended", "claimed", "acked"]
    assert done["why"]["code"] == "ended"
    assert done["why"]["text"].startswith("Done: acked by w ")
    dead = ok(api.job(queue, 2, ended="true"))
    assert (dead["job"]["state"], dead["copy"]["topic"]) == ("dead_lettered", f"{queue}.dead")
    assert dead["job"]["last_error"] == "bad"
    ok(api.post(f"{queue}.dead", "redrive", seqs=[1]))
    assert ok(api.job(queue, 2, ended="true"))["copy"]["exists"] is False
    looked = ok(api.send("GET", f"/v0/topics/{queue}/jobs/3?timeline=false&data=false"))
    assert set(looked) == {"topic", "job", "why", "performance"}
    assert (looked["job"]["state"], "data" in looked["job"]) == ("ready", False)
    looked = ok(api.send("GET", f"/v0/topics/{queue}/jobs/1?timeline=false&ended=true"))
    assert (looked["job"]["state"], looked["why"]["code"]) == ("gone", "ended")
    refused(api.job(queue, 1, timeline="false"), 404, "not_found")
    refused(api.job(queue, 4, ended="true"), 404, "not_found")


def test_a_job_that_a_cap_evicted_was_dropped(api: Api, queue: str) -> None:
    """No event names it: the floor of its queue says that it is over."""
    ok(api.patch(queue, cap_records=1))
    api.append(queue, 1, 2, 3)
    shown = ok(api.job(queue, 1, ended="true"))
    assert (shown["job"]["state"], shown["job"]["data"]) == ("dropped", 1)
    assert shown["why"]["text"] == "Dropped."


@pytest.mark.parametrize("seq", ["x", "-1", "1.0", "1e0", str(2**64), "%31%00", "a%2Fb"])
def test_a_seq_that_is_none(api: Api, queue: str, seq: str) -> None:
    """400 for look and cancel alike."""
    refused(api.job(queue, seq), 400, "invalid_request")
    refused(api.cancel(queue, seq), 400, "invalid_request")


@pytest.mark.parametrize("seq", [0, 2, 2**64 - 1])
def test_a_job_that_is_not_there(api: Api, queue: str, seq: int) -> None:
    """404 for a look; a cancel finds nothing to do."""
    api.append(queue, 1)
    refused(api.job(queue, seq), 404, "not_found", {"topic": queue, "seq": seq})
    assert ok(api.cancel(queue, seq))["cancelled"] is False


def test_a_seq_may_be_encoded(api: Api, queue: str) -> None:
    """Segments are decoded once."""
    api.append(queue, 1)
    assert ok(api.job(queue, "%31"))["job"]["$seq"] == 1


# -- cancel --------------------------------------------------------------------------------------


def test_cancel_voids_a_lease(api: Api, queue: str) -> None:
    """Forced: the worker's next settle is skipped; without force nothing happens."""
    api.append(queue, 1)
    [job] = api.claimed(queue)
    body = ok(api.cancel(queue, 1))
    assert (body["cancelled"], body["state"], body["$seq"]) == (False, "in_flight", 1)
    assert ok(api.extend(queue, [1]))["extended"] == 1
    body = ok(api.cancel(queue, 1, force="true"))
    assert (body["topic"], body["cancelled"], body["state"]) == (queue, True, "in_flight")
    for settle in (api.ack, api.nack, api.reject, api.extend):
        assert ok(settle(queue, [1], lease_ids=[job["lease_id"]]))["skipped"] == [1]
    assert api.facts(queue, "count", "in_flight") == (0, 0)


def test_cancel_frees_a_slot_of_a_stream(api: Api, queue: str) -> None:
    """The next job is pushed at once."""
    api.append(queue, 1, 2)
    with api.work(queue, node="w") as stream:
        assert stream.jobs(1)[0]["$seq"] == 1
        ok(api.cancel(queue, 1, force="true"))
        assert stream.jobs(1)[0]["$seq"] == 2


def test_cancel_by_key_takes_waiting_jobs_only(api: Api, queue: str) -> None:
    """The one in flight is not the one that the key names."""
    ok(api.write(queue, [{"data": 1, "key": "k"}]))
    api.claimed(queue)
    assert ok(api.cancel_key(queue, "k"))["cancelled"] is False
    ok(api.write(queue, [{"data": 2, "key": "k", "delay_ms": 60_000}]))
    body = ok(api.cancel_key(queue, "k"))
    assert (body["cancelled"], body["$seq"], body["state"]) == (True, 2, "delayed")
    assert api.facts(queue, "count", "in_flight") == (1, 1)
    assert ok(api.cancel_key(queue, "k"))["cancelled"] is False


# -- purge and release ---------------------------------------------------------------------------


@pytest.mark.parametrize("states", [[state] for state in STATES] + [STATES, ["held", "held"]])
def test_purge(api: Api, mixed: str, states: list[str]) -> None:
    """Counts per state; all others stay."""
    body = ok(api.post(mixed, "purge", states=states))
    assert body["purged"] == dict.fromkeys(states, 2)
    assert api.facts(mixed, *STATES) == tuple(0 if s in states else 2 for s in STATES)
    if "in_flight" in states:
        assert ok(api.ack(mixed, [3, 4]))["acked"] in (0, 2)


def test_purge_of_many(api: Api, queue: str) -> None:
    """More than one transaction takes."""
    for _ in range(3):
        ok(api.write(queue, numbered(10_000)))
    assert ok(api.post(queue, "purge", states=["ready"]))["purged"] == {"ready": 30_000}
    assert api.facts(queue, "count") == (0,)


@pytest.mark.parametrize(
    "content",
    [b"{}", b'{"states":null}', b'{"states":[]}', b'{"states":["Ready"]}', b'{"states":["acked"]}',
     b'{"states":"ready"}', b'{"states":[1]}', b"[]"],
)  # fmt: skip
def test_bad_purges(api: Api, mixed: str, content: bytes) -> None:
    """400 and nothing is gone."""
    refused(api.send("POST", f"/v0/topics/{mixed}/purge", content, JSON), 400, "invalid_request")
    assert api.facts(mixed, "count") == (8,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("null", "invalid_request"), ("1", "invalid_request"), ("[-1]", "invalid_request"),
        ("[1.0]", "invalid_request"), ('["1"]', "invalid_request"), ("[true]", "invalid_request"),
        (f"[{2**64}]", "invalid_request"), (f"[{'0,' * 1000}0]", "batch_too_large"),
    ],
    ids=lambda text: str(text)[:12],
)  # fmt: skip
def test_bad_releases(api: Api, mixed: str, text: str, code: str) -> None:
    """As the seqs of every call."""
    content = ('{"seqs":' + text + "}").encode()
    refused(api.send("POST", f"/v0/topics/{mixed}/release", content, JSON), 400, code)


def test_release_of_several(api: Api, mixed: str) -> None:
    """Skipped in the order given; what was released is claimable and wakes streams."""
    with api.work(mixed, node="s", max=9) as stream:
        assert seqs_of(stream.jobs(2)) == [5, 6]
        body = ok(api.post(mixed, "release", seqs=[9, 2, 3, 1]))
        assert (body["released"], body["skipped"], body["held"]) == (2, [9, 3], 0)
        assert sorted(seqs_of(stream.jobs(2))) == [1, 2]


# -- refusals of all of these routes -------------------------------------------------------------

CALLS: dict[str, tuple[str, str, Json | None]] = {
    "jobs": ("GET", "/jobs", None),
    "job": ("GET", "/jobs/1", None),
    "cancel": ("DELETE", "/jobs/1", None),
    "cancel key": ("DELETE", "/keys/k", None),
    "purge": ("POST", "/purge", {"states": ["ready"]}),
    "release": ("POST", "/release", {"seqs": [1]}),
    "workers": ("GET", "/workers", None),
}


def call(api: Api, topic: str, name: str) -> Any:
    """One of these calls."""
    method, path, body = CALLS[name]
    if body is None:
        return api.send(method, f"/v0/topics/{topic}{path}")
    return api.json(method, f"/v0/topics/{topic}{path}", body)


@pytest.mark.parametrize("name", CALLS)
def test_absent_and_not_a_queue(api: Api, topic: str, name: str) -> None:
    """404 and 409; looking never creates."""
    refused(call(api, topic, name), 404, "topic_not_found", {"topic": topic})
    refused(api.state(topic), 404, "topic_not_found")
    api.make_log(topic)
    refused(call(api, topic, name), 409, "not_a_queue", {"topic": topic})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/jobs"), ("PUT", "/jobs/1"), ("POST", "/jobs/1"), ("GET", "/keys/k"),
        ("GET", "/purge"), ("GET", "/release"), ("POST", "/workers"), ("GET", "/reject"),
        ("GET", "/redrive"), ("OPTIONS", "/jobs"),
    ],
)  # fmt: skip
def test_other_methods(api: Api, queue: str, method: str, path: str) -> None:
    """405."""
    refused(api.send(method, f"/v0/topics/{queue}{path}"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "path", ["/jobs/", "/jobs/1/", "/jobs/1/2", "/keys", "/keys/", "/keys/a/b", "/workers/x", "//1"]
)
def test_paths_that_are_none(api: Api, queue: str, path: str) -> None:
    """404 not_found."""
    for method in ("GET", "DELETE"):
        refused(api.send(method, f"/v0/topics/{queue}{path}"), 404, "not_found")


@pytest.mark.parametrize("path", ["/jobs", "/jobs/1", "/workers"])
def test_head(api: Api, queue: str, path: str) -> None:
    """As GET, without a body."""
    api.append(queue, 1)
    raw = api.raw(rawhttp.request("HEAD", f"/v0/topics/{queue}{path}"), method="HEAD")
    assert (raw.status, raw.body) == (200, b"")


# -- workers -------------------------------------------------------------------------------------


def workers(api: Api, queue: str) -> dict[str, Json]:
    """What is known of each node."""
    body = ok(api.workers(queue))
    assert body["count"] == len(body["workers"])
    return {worker["node"]: worker for worker in body["workers"]}


def test_workers(api: Api, queue: str) -> None:
    """What each node did and holds, as this run of the server has seen it."""
    assert workers(api, queue) == {}
    ok(api.write(queue, numbered(9)))
    before = now_ms()
    api.claimed(queue, "a", max=4)
    ok(api.ack(queue, [1], "a"))
    ok(api.nack(queue, [2], "a"))
    ok(api.reject(queue, [3], "a"))
    with api.work(queue, node="s", max=2) as stream:
        stream.jobs(2)
        seen = workers(api, queue)
        assert set(seen) == {"a", "s"}
        a, s = seen["a"], seen["s"]
        assert before - 1 <= a.pop("last_seen_ts") <= now_ms() + 1
        assert a == {
            "node": "a", "in_flight": 1, "streams": 0, "waiting": 0, "claimed": 4, "acked": 1,
            "nacked": 1, "rejected": 1, "expired": 0,
        }  # fmt: skip
        assert (s["in_flight"], s["streams"], s["claimed"]) == (2, 1, 2)
    assert eventually(lambda: workers(api, queue)["s"]["in_flight"] == 0)
    assert workers(api, queue)["s"]["streams"] == 0


def test_expired_leases_are_counted(api: Api, queue: str) -> None:
    """By the node that let them run out."""
    api.append(queue, 1, 2)
    api.claimed(queue, "lazy", max=2, lease_ms=100)
    assert eventually(lambda: workers(api, queue)["lazy"]["expired"] == 2)
    assert workers(api, queue)["lazy"]["in_flight"] == 0


def test_a_worker_that_asks_in_vain_is_seen(api: Api, queue: str) -> None:
    """It is there, even if it never got anything."""
    ok(api.claim(queue, "hungry"))
    assert workers(api, queue)["hungry"]["claimed"] == 0


def test_workers_are_forgotten_with_their_queue(api: Api, queue: str) -> None:
    """A queue made again has none."""
    ok(api.claim(queue, "w"))
    ok(api.delete_topic(queue))
    api.make_queue(queue)
    assert workers(api, queue) == {}


# -- counters ------------------------------------------------------------------------------------


def test_queue_counters(api: Api, topic: str) -> None:
    """All of them, on a fresh queue and in the list."""
    api.make_queue(topic)
    fresh = {
        "ready": 0, "in_flight": 0, "dead_lettered": 0, "delayed": 0, "held": 0, "acked": 0,
        "rejected": 0, "expired": 0, "dropped": 0, "superseded": 0, "paused": False,
        "oldest_ready_ms": 0,
    }  # fmt: skip
    queue = ok(api.state(topic))["queue"]
    assert {name: queue[name] for name in fresh} == fresh
    [entry] = ok(api.topics(prefix=topic))["topics"]
    assert entry["queue"]["ready"] == 0


def test_the_age_of_the_oldest(api: Api, queue: str) -> None:
    """Of claimable jobs only."""
    ok(api.write(queue, [{"data": 1, "delay_ms": 60_000}]))
    assert api.facts(queue, "oldest_ready_ms") == (0,)
    before = now_ms()
    api.append(queue, 2)
    assert eventually(lambda: api.facts(queue, "oldest_ready_ms")[0] > 10)
    assert api.facts(queue, "oldest_ready_ms")[0] <= now_ms() - before + 1
    api.claimed(queue)
    assert api.facts(queue, "oldest_ready_ms") == (0,)
    ok(api.nack(queue, [2]))
    assert api.facts(queue, "oldest_ready_ms")[0] >= 10


def test_outcomes_are_counted(api: Api, topic: str) -> None:
    """One job for each end."""
    api.make_queue(topic, max_deliveries=1, on_exhausted="drop")
    ok(api.write(topic, [{"data": 1}, {"data": 2}, {"data": 3}, {"data": 4, "ttl_ms": 30}]))
    api.claimed(topic, max=3)
    ok(api.ack(topic, [1]))
    ok(api.reject(topic, [2]))
    ok(api.nack(topic, [3]))
    assert api.claimed(topic) == [] or True
    assert eventually(lambda: api.facts(topic, "count") == (0,))
    names = ("acked", "rejected", "dropped", "expired", "superseded", "dead_lettered")
    assert eventually(lambda: api.facts(topic, *names) == (1, 1, 1, 1, 0, 0))
