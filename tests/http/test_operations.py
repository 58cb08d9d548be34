"""Health, readiness and metrics."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http.api import Api, numbered
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, plain_ok, refused

JSON_KEYS = {
    "topics", "topics_ephemeral", "topics_memory", "topics_disk", "topics_fsync", "routers",
    "records_live", "bytes_live", "queue_topics", "queue_leases_in_flight", "sse_connections",
    "watch_sessions", "ready", "replay_progress", "uptime_ms", "wal",
}  # fmt: skip
WAL_KEYS = {
    "fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth",
    "queue_depth_peak", "submit_full_total", "read_only", "fsync_count", "fsync_micros_total",
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health(api: Api, path: str) -> None:
    """Status, version and a rising uptime; no performance block."""
    body = plain_ok(api.send("GET", path))
    assert set(body) == {"status", "version", "uptime_ms"}
    assert body["status"] == "ok"
    assert isinstance(body["version"], str) and body["version"]
    assert isinstance(body["uptime_ms"], int)
    assert eventually(lambda: plain_ok(api.send("GET", path))["uptime_ms"] > body["uptime_ms"])


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready(fresh_server: FreshServer, api_for: ApiFor, path: str) -> None:
    """Says so, and counts topics; no performance block."""
    api = api_for(fresh_server())
    wanted: Json = {"status": "ready", "wal_replay_complete": True, "topics": 0}
    assert plain_ok(api.send("GET", path)) == wanted
    api.make_log("a")
    api.make_queue("b")
    assert plain_ok(api.send("GET", path)) == {**wanted, "topics": 2}
    ok(api.delete_topic("a"))
    assert plain_ok(api.send("GET", path)) == {**wanted, "topics": 1}


def metrics_json(api: Api) -> Json:
    """The JSON form of the metrics."""
    return plain_ok(api.send("GET", "/v0/metrics", None, {"accept": "application/json"}))


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        (None, False),
        ("*/*", False),
        ("text/plain", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/json", True),
        ("text/html, application/json;q=0.5", True),
    ],
)
def test_metrics_formats(api: Api, accept: str | None, is_json: bool) -> None:
    """Prometheus text unless JSON is asked for."""
    headers = {"accept": accept} if accept else {}
    reply = api.send("GET", "/v0/metrics", None, headers)
    assert reply.status_code == 200
    if is_json:
        assert reply.headers["content-type"] == "application/json"
        assert set(plain_ok(reply)) >= JSON_KEYS
    else:
        kind = reply.headers["content-type"].replace(" ", "")
        assert kind.startswith("text/plain;version=0.0.4"), kind
        assert list(text_string_to_metric_families(reply.text))


def test_metrics_as_json(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Every key, and numbers that follow what is done."""
    api = api_for(fresh_server())
    empty = metrics_json(api)
    assert set(empty) >= JSON_KEYS
    assert set(empty["wal"]) >= WAL_KEYS
    assert empty["topics"] == 0
    for number, durability in enumerate(["ephemeral", "memory", "disk", "fsync", "fsync"]):
        ok(api.put(f"t{number}", durability=durability), 201)
    ok(api.put("q", type="queue"), 201)
    ok(api.write("q", [{"data": "xxx"}, {"data": "yyy"}]))
    ok(api.write("t4", numbered(3)))
    api.claimed("q")
    with api.work("q", node="s") as stream:
        stream.jobs(1)
        found = metrics_json(api)
    wanted = {
        "topics": 6,
        "topics_ephemeral": 1,
        "topics_memory": 1,
        "topics_disk": 2,
        "topics_fsync": 2,
        "routers": 0,
        "records_live": 5,
        "bytes_live": 13,
        "queue_topics": 1,
        "queue_leases_in_flight": 2,
        "sse_connections": 1,
        "watch_sessions": 0,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["ready"] in (1, True)
    assert found["replay_progress"] == 1
    assert found["uptime_ms"] >= empty["uptime_ms"]
    for name in ("fsyncs", "frames", "batches", "bytes_written", "fsync_count"):
        assert found["wal"][name] > empty["wal"][name], name
    assert found["wal"]["fsync_micros_total"] > 0
    assert found["wal"]["read_only"] in (0, False)
    assert eventually(lambda: metrics_json(api)["sse_connections"] == 0)


def test_metrics_as_text(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Well-formed, per-topic series, a sync histogram, and the same numbers as in JSON."""
    api = api_for(fresh_server())
    ok(api.put("a:b.c_d-e", type="queue", durability="fsync"), 201)
    ok(api.write("a:b.c_d-e", numbered(3)))
    api.claimed("a:b.c_d-e")
    reply = api.send("GET", "/v0/metrics")
    families = {family.name: family for family in text_string_to_metric_families(reply.text)}
    of_topic: dict[str, float] = {}
    for family in families.values():
        for sample in family.samples:
            if sample.labels.get("topic") == "a:b.c_d-e":
                of_topic[sample.name] = sample.value
    values = sorted(of_topic.values())
    assert len(values) >= 6, of_topic
    for words, value in {
        ("head",): 3, ("earliest",): 1, ("records",): 3, ("bytes",): 3, ("ready",): 2,
        ("flight",): 1,
    }.items():  # fmt: skip
        matching = [of_topic[name] for name in of_topic if all(word in name for word in words)]
        assert value in matching, (words, of_topic)
    bounds = {
        sample.labels["le"]
        for family in families.values()
        if family.type == "histogram" and "fsync" in family.name
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    numbers = {float(bound) for bound in bounds}
    wanted = {50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000, float("inf")}
    assert numbers == wanted, numbers


def test_metrics_have_help_and_one_prefix(api: Api) -> None:
    """Every family of the server is documented in place."""
    text = api.send("GET", "/v0/metrics").text
    helped = set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    typed = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert helped == typed
    assert {name.partition("_")[0] for name in typed} <= {"logqueue", "process", "python"}


def test_probes_answer_while_much_is_written(api: Api, queue: str) -> None:
    """A probe waits for no batch."""
    ok(api.write(queue, numbered(10_000)))
    plain_ok(api.send("GET", "/v0/health"))
    plain_ok(api.send("GET", "/v0/ready"))


def test_the_port_answers_during_recovery(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Probes answer at once; data routes wait with 503 and the progress, and nothing is partial."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="disk")
    for start in range(0, 300_000, 10_000):
        ok(api.write("q", numbered(10_000, start), query="?return_seqs=false"))
    server.kill()
    server.spawn()
    server.wait_bound()
    again = api_for(server)
    progress = [0.0]
    while True:
        plain_ok(again.send("GET", "/v0/health"))
        state, ready = again.state("q"), again.send("GET", "/readyz")
        if state.status_code == 200:
            break
        for reply in (state, ready):
            if reply.status_code == 503:
                progress.append(refused(reply, 503, "not_ready")["replay_progress"])
        assert server.running
    assert ok(state)["count"] == 300_000
    assert progress == sorted(progress) and progress[-1] <= 1.0
    server.wait_ready()
    assert len(again.claimed("q", max=1000)) == 1000
