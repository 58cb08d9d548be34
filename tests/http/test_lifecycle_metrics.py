"""What operators can watch of the job life cycle."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from logqueue.testing import MemoryServer
from logqueue.testing.plugin import logqueue_memory as logqueue_memory
from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import eventually, ok


@pytest.fixture
def own(fresh_server: FreshServer, api_for: ApiFor) -> Iterator[Api]:
    """A server of its own, so that its figures are those of one test."""
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
    assert eventually(lambda: figures(own)["logqueue_topic_queue_oldest_ready_seconds" + label] > 0)
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


FAILING = {
    "dead letters": ({"dead_letter": "dead"}, {"dead_lettered": 3}),
    "dropped": ({"on_exhausted": "drop"}, {"dead_lettered": 0}),
    "held": ({"on_exhausted": "hold"}, {"dead_lettered": 0}),
}


@pytest.mark.parametrize("case", FAILING)
def test_failures_are_told_apart_whatever_becomes_of_the_jobs(own: Api, case: str) -> None:
    """By queue and in all, with a dead-letter topic and without."""
    config, counted = FAILING[case]
    expiring = {"on_expire": "dead_letter"} if "dead_letter" in config else {}
    own.make_queue("q", max_deliveries=1, **config, **expiring)
    ok(own.write("q", [{"data": 1}, {"data": 2}, {"data": 3, "ttl_ms": 200, "delay_ms": 100}]))
    own.claimed("q", max=2)
    ok(own.reject("q", [1]))
    ok(own.nack("q", [2]))
    own.claimed("q")
    eventually(lambda: own.claimed("q") == [] and own.facts("q", "ready", "delayed") == (0, 0))
    eventually(lambda: figures(own)['logqueue_jobs_failed_total{reason="expired"}'] == 1)
    after = figures(own)
    for reason in ("rejected", "max_deliveries", "expired"):
        assert after[f'logqueue_jobs_failed_total{{reason="{reason}"}}'] == 1
        assert after[f'logqueue_topic_jobs_failed_total{{topic="q",reason="{reason}"}}'] == 1
    [worker] = ok(own.workers("q"))["workers"]
    assert worker["rejected"] == 1
    for name, value in counted.items():
        assert after[f'logqueue_topic_jobs_{name}_total{{topic="q"}}'] == value


def test_counters_of_a_queue(own: Api) -> None:
    """Deliveries, redeliveries, acks; gone with the queue."""
    own.make_queue("q")
    own.append("q", 1, 2, 3)
    own.claimed("q", max=2)
    ok(own.nack("q", [1]))
    own.claimed("q", max=2)
    ok(own.ack("q", [1, 2]))
    after = figures(own)
    counts = {"claimed": 4, "redelivered": 1, "released": 1, "acked": 2, "dead_lettered": 0}
    for name, value in counts.items():
        assert after[f'logqueue_topic_jobs_{name}_total{{topic="q"}}'] == value, name
    ok(own.delete_topic("q"))
    assert not [name for name in figures(own) if 'topic="q"' in name]


def test_expired_leases_are_counted(logqueue_memory: MemoryServer) -> None:
    """Once each, by queue and in all; neither acks nor nacks nor leases that were extended."""
    client = logqueue_memory.client
    client.append("q", [1, 2, 3, 4], config={"type": "queue"})
    client.append("other", [1], config={"type": "queue"})
    client.claim("other", lease_ms=60_000)
    acked, nacked, extended, _ = client.claim("q", max=4, lease_ms=1000).jobs
    client.ack("q", [acked])
    client.nack("q", [nacked])
    client.extend("q", [extended], lease_ms=5000)
    client.claim("q", lease_ms=2000)
    for seconds, expired in ((0.9, 0), (0.2, 1), (1.0, 2), (0.5, 2), (10.0, 3)):
        logqueue_memory.advance(seconds)
        client.topic("q", touch=False)
        found = dict(
            re.findall(r"^logqueue_(.*leases_expired_total\S*) (\S+)$", client.metrics_text(), re.M)
        )
        assert found == {
            "leases_expired_total": f"{expired}.0",
            'topic_leases_expired_total{topic="q"}': f"{expired}",
            'topic_leases_expired_total{topic="other"}': "0",
            'topic_leases_expired_total{topic="<other>"}': "0",
        }


def test_queues_beyond_the_bound_are_added_up(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """The first at work have counters of their own, and keep them; no counter ever goes back."""
    api = api_for(fresh_server("--metrics-topics-max", "2"))
    for name in ("d", "c", "b", "a"):
        api.make_queue(name)
        api.append(name, name)
        api.claimed(name)
    after = figures(api)
    acked = "logqueue_topic_jobs_claimed_total"
    found = {name.partition("{")[2]: value for name, value in after.items() if acked in name}
    assert found == {'topic="d"}': 1, 'topic="c"}': 1, 'topic="<other>"}': 2}
    # Gauges are of the first by name.
    assert after['logqueue_topic_records_live{topic="b"}'] == 1
    assert 'logqueue_topic_records_live{topic="c"}' not in after
    assert after["logqueue_topic_labels_truncated"] == 1
    assert after["logqueue_jobs_claimed_total"] == 4


def test_openmetrics(own: Api) -> None:
    """When asked for, and it says the same."""
    own.make_queue("q")
    own.append("q", 1)
    own.claimed("q")
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    reply = own.send("GET", "/v0/metrics", headers={"accept": accept})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in parse_openmetrics(reply.text)}  # type: ignore[no-untyped-call]
    assert families["logqueue_topic_jobs_claimed"].samples[0].value == 1
    older = own.send("GET", "/v0/metrics").text
    assert {f.name for f in text_string_to_metric_families(older)} - {*families} <= {
        "logqueue_build_info"
    }


def test_names_follow_the_rules(own: Api) -> None:
    """Base units, `_total` for counters only; those that the contract names are the exception."""
    own.make_queue("q")
    demanded = {"logqueue_uptime_ms", "logqueue_fsync_latency_us"}
    for family in text_string_to_metric_families(own.send("GET", "/v0/metrics").text):
        name = family.name
        assert name in demanded or not re.search(r"_(ms|us|millis|micros|kb|mb)(_|$)", name), name
        assert family.documentation
        if family.type == "histogram":
            assert name in demanded or name.endswith("_seconds"), name
    text = own.send("GET", "/v0/metrics").text
    assert 'logqueue_build_info{python="' in text and "process_resident_memory_bytes" in text
    assert "process_cpu_seconds_total" in text and "logqueue_uptime_seconds" in text
    assert not re.search(r"^# TYPE \S+_total (?!counter)", text, re.MULTILINE)
    assert not re.search(r"^# TYPE \S+(?<!_total) counter", text, re.MULTILINE)
