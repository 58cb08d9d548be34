"""What of the job life cycle survives a restart, orderly or not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.http.api import Api, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, refused
from tests.http.process import ServerProcess

STOPS = ["terminate", "kill"]


def again(server: ServerProcess, api_for: ApiFor, stop: str) -> Api:
    """Stop the server in some way, start it again, and connect."""
    getattr(server, stop)()
    server.start()
    return api_for(server)


@pytest.fixture(params=STOPS)
def stop(request: pytest.FixtureRequest) -> str:
    """How the server ends."""
    return str(request.param)


@pytest.mark.parametrize("leases_durable", [False, True])
def test_what_records_say(
    fresh_server: FreshServer, api_for: ApiFor, stop: str, leases_durable: bool
) -> None:
    """Delays, lives, keys and own bounds are in the jobs log."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", leases_durable=leases_durable, on_exhausted="drop")
    records: list[Json] = [
        {"data": "delayed", "delay_ms": 60_000},
        {"data": "keyed", "key": "k"},
        {"data": "short", "ttl_ms": 60_000},
        {"data": "once", "max_deliveries": 1},
        {"data": "far", "not_before": 2**60},
    ]
    ok(api.write("q", records))
    before = ok(api.jobs("q"))["jobs"]
    api = again(server, api_for, stop)
    after = ok(api.jobs("q"))["jobs"]
    for job in (*before, *after):
        del job["age_ms"]
    assert after == before
    assert api.facts("q", "ready", "delayed", "count") == (3, 2, 5)
    body = ok(api.write("q", [{"data": "new", "key": "k"}]))
    assert body["results"] == [{"seq": 2, "result": "replaced"}]
    assert [job["data"] for job in api.claimed("q", max=9)] == ["new", "short", "once"]
    ok(api.nack("q", [4]))
    assert seqs_of(api.claimed("q", max=9)) == []
    assert api.facts("q", "dropped") == (1,)


def test_replacements(fresh_server: FreshServer, api_for: ApiFor, stop: str) -> None:
    """The newest content, at its old place."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q")
    for number in range(5):
        ok(api.write("q", [{"data": number, "key": "k", "tag": str(number)}]))
        api.append("q", "other") if number == 0 else None
    before = api.read("q", include_tags=True)
    api = again(server, api_for, stop)
    assert api.read("q", include_tags=True) == before
    first, second = api.claimed("q", max=9)
    assert (first["$seq"], first["data"], first["$tag"], first["$key"]) == (1, 4, "4", "k")
    assert "$updated_at" in first
    assert second["data"] == "other"


def test_an_idempotent_keyed_write_is_remembered(
    fresh_server: FreshServer, api_for: ApiFor, stop: str
) -> None:
    """With its results."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="disk")
    ok(api.write("q", [{"data": 0, "key": "k"}]))
    records = [{"data": 1, "key": "k"}, {"data": 2}]
    first = ok(api.write("q", records, idempotency_key="i"))
    api = again(server, api_for, stop)
    second = ok(api.write("q", records, idempotency_key="i"))
    assert second["deduped"] is True
    assert (second["seqs"], second["results"]) == (first["seqs"], first["results"])


def test_held_jobs_and_counters(fresh_server: FreshServer, api_for: ApiFor, stop: str) -> None:
    """An operator finds them as he left them, with the error."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", on_exhausted="hold")
    api.append("q", 1, 2, 3, 4)
    api.claimed("q", max=4)
    ok(api.reject("q", [1, 2], error="bad"))
    ok(api.ack("q", [3]))
    ok(api.cancel("q", 4, force="true"))
    ok(api.post("q", "release", seqs=[2]))
    names = ("held", "ready", "acked", "rejected", "count")
    assert api.facts("q", *names) == (1, 1, 1, 0, 2)
    api = again(server, api_for, stop)
    assert api.facts("q", *names) == (1, 1, 1, 0, 2)
    [job] = ok(api.jobs("q", state="held"))["jobs"]
    assert (job["$seq"], job["last_error"], job["deliveries"]) == (1, "bad", 1)
    assert seqs_of(api.claimed("q", max=9)) == [2]


@pytest.mark.parametrize("leases_durable", [False, True])
def test_errors_and_delays_of_nacks(
    fresh_server: FreshServer, api_for: ApiFor, stop: str, leases_durable: bool
) -> None:
    """They come back on every queue, and an uncounted hand-back stays uncounted."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", leases_durable=leases_durable)
    api.append("q", 1, 2)
    api.claimed("q", max=2)
    ok(api.nack("q", [1], error="why", delay_ms=60_000))
    ok(api.nack("q", [2], error="why", count=False))
    if not leases_durable:
        # The server hands lease events of such a queue to the system every 100 ms.
        time.sleep(1.0)
    api = again(server, api_for, stop)
    assert api.facts("q", "ready", "delayed") == (1, 1)
    [job] = api.claimed("q", max=9)
    assert (job["$seq"], job["deliveries"], job["last_error"]) == (2, 1, "why")


def test_config(fresh_server: FreshServer, api_for: ApiFor, stop: str) -> None:
    """Patched fields and the pause are synced before their reply."""
    server = fresh_server()
    api = api_for(server)
    fields: dict[str, Any] = {
        "retry_backoff": {"kind": "linear", "base_ms": 5},
        "claim_rate": {"per_s": 5, "burst": 2},
        "on_exhausted": "hold",
        "max_in_flight": 3,
        "archive": "done",
    }
    api.make_queue("q")
    ok(api.patch("q", **fields))
    ok(api.pause("q"))
    before = ok(api.state("q"))["config"]
    api = again(server, api_for, stop)
    assert ok(api.state("q"))["config"] == before
    api.append("q", 1)
    assert ok(api.claim("q"))["reason"] == "paused"


def test_what_was_cancelled_stays_away(
    fresh_server: FreshServer, api_for: ApiFor, stop: str
) -> None:
    """Cancel, purge, reject, superseded: gone is gone."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q")
    api.append("q", 1, 2, 3)
    ok(api.cancel("q", 1))
    assert seqs_of(api.claimed("q")) == [2]
    ok(api.reject("q", [2]))
    ok(api.post("q", "purge", states=["ready"]))
    ok(api.write("q", [{"data": "old", "key": "k"}]))
    api.claimed("q")
    ok(api.write("q", [{"data": "new", "key": "k"}]))
    ok(api.nack("q", [4]))
    assert eventually(lambda: api.facts("q", "count") == (1,))
    names = ("rejected", "superseded", "count", "head_seq")
    before = api.facts("q", *names)
    api = again(server, api_for, stop)
    assert api.facts("q", *names[:3]) == before[:3]
    assert [job["data"] for job in api.claimed("q", max=9)] == ["new"]


def test_expiry_while_the_server_is_down(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Time acts as if the server had been there."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q")
    ok(api.write("q", [{"data": 1, "ttl_ms": 30}, {"data": 2, "delay_ms": 30}, {"data": 3}]))
    api = again(server, api_for, "kill")
    assert eventually(lambda: api.facts("q", "ready", "delayed", "count") == (2, 0, 2))
    assert sorted(job["data"] for job in api.claimed("q", max=9)) == [2, 3]


def test_a_void_lease_stays_void(fresh_server: FreshServer, api_for: ApiFor, stop: str) -> None:
    """The worker of a cancelled job is skipped, also after the restart."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", leases_durable=True)
    api.append("q", 1)
    [job] = api.claimed("q")
    ok(api.cancel("q", 1, force="true"))
    api = again(server, api_for, stop)
    assert ok(api.ack("q", [1], lease_ids=[job["lease_id"]]))["skipped"] == [1]
    refused(api.job("q", 1), 404, "not_found")
    assert ok(api.job("q", 1, ended="true"))["job"]["state"] == "cancelled"


def test_the_history_goes_over_a_restart(
    fresh_server: FreshServer, api_for: ApiFor, stop: str
) -> None:
    """As far as the leases log is kept."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", leases_durable=True)
    api.append("q", 1)
    api.claimed("q", "a")
    ok(api.nack("q", [1], "a", error="no"))
    api = again(server, api_for, stop)
    api.claimed("q", "b")
    body = ok(api.job("q", 1))
    assert [entry["event"] for entry in body["history"]] == ["claimed", "nack", "claimed"]
    assert body["job"]["last_error"] == "no"
