"""What operators can watch of the job life cycle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok


@pytest.fixture
def own(fresh_server: FreshServer, api_for: ApiFor) -> Iterator[Api]:
    """A server whose figures nobody else moves."""
    yield api_for(fresh_server())


def figures(api: Api) -> dict[str, float]:
    """Every sample of a scrape, by name and labels."""
    text = api.send("GET", "/v0/metrics").text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_outcomes(own: Api) -> None:
    """One label per outcome, there from the start, each counted."""
    outcomes = ("acked", "rejected", "dropped", "expired", "superseded", "cancelled")
    names = {o: f'logqueue_jobs_finished_total{{outcome="{o}"}}' for o in outcomes}
    before = figures(own)
    assert [before[name] for name in names.values()] == [0] * len(outcomes)
    own.make_queue("q", max_deliveries=1, on_exhausted="drop")
    ok(own.write("q", [{"data": 1}, {"data": 2}, {"data": 3}, {"data": 4, "key": "k"}]))
    own.claimed("q", max=4)
    ok(own.write("q", [{"data": 5, "key": "k"}, {"data": 6, "ttl_ms": 1}, {"data": 7}]))
    ok(own.ack("q", [1]))
    ok(own.reject("q", [2]))
    ok(own.nack("q", [3, 4]))
    ok(own.pause("q"))
    ok(own.cancel("q", 7))
    ok(own.resume("q"))
    assert eventually(lambda: own.facts("q", "expired") == (1,))
    assert [job["data"] for job in own.claimed("q", max=9)] == [5]
    after = figures(own)
    assert {o: after[name] for o, name in names.items()} == dict.fromkeys(outcomes, 1)
    assert after["logqueue_jobs_acked_total"] == 1


def test_replaced_redriven_and_handed_back(own: Api) -> None:
    """What happens to jobs that do not end."""
    own.make_queue("q", dead_letter="dead")
    for data in (1, 2):
        ok(own.write("q", [{"data": data, "key": "k"}]))
    own.claimed("q")
    ok(own.nack("q", [1], count=False))
    own.claimed("q")
    ok(own.reject("q", [1]))
    ok(own.post("dead", "redrive"))
    after = figures(own)
    assert after["logqueue_jobs_replaced_total"] == 1
    assert after["logqueue_jobs_dead_lettered_total"] == 1
    assert after["logqueue_jobs_redriven_total"] == 1
    assert after['logqueue_jobs_released_total{reason="handed_back"}'] == 1
    assert after['logqueue_jobs_released_total{reason="nack"}'] == 0


def test_gauges_of_a_queue(own: Api) -> None:
    """Delayed, held, paused, and how long the oldest job has been waiting."""
    own.make_queue("q", on_exhausted="hold")
    ok(own.write("q", [{"data": 1}, {"data": 2, "delay_ms": 60_000}, {"data": 3}]))
    own.claimed("q")
    ok(own.reject("q", [1]))
    ok(own.pause("q"))
    label = '{topic="q"}'
    assert eventually(lambda: figures(own)["logqueue_topic_queue_oldest_ready_ms" + label] > 0)
    after = figures(own)
    names = ("ready", "in_flight", "delayed", "held", "paused")
    assert [after[f"logqueue_topic_queue_{name}{label}"] for name in names] == [1, 0, 1, 1, 1]
    assert after["logqueue_queue_jobs_delayed"] == 1
    assert after["logqueue_queue_jobs_held"] == 1


def test_waiting_claims(own: Api) -> None:
    """A gauge that goes back when they leave."""
    own.make_queue("q")
    with rawhttp.Connection(own.address) as poll:
        body = b'{"node":"w","wait_ms":30000}'
        poll.send(rawhttp.request("POST", "/v0/topics/q/claim", body, JSON))
        assert eventually(lambda: figures(own)["logqueue_claims_waiting"] == 1)
    assert eventually(lambda: figures(own)["logqueue_claims_waiting"] == 0)


def test_the_json_form(own: Api) -> None:
    """Has the main figures, too."""
    found = own.send("GET", "/v0/metrics", headers={"accept": "application/json"}).json()
    for name in ("queue_jobs_delayed", "queue_jobs_held", "claims_waiting"):
        assert found[name] == 0
