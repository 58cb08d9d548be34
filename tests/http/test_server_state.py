"""`GET /v0/server` and its log level: true, without secrets, and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.http.api import Api
from tests.http.expect import eventually, ok, refused
from tests.http.process import ServerProcess

STATE = "/v0/server"
LEVEL = "/v0/server/log_level"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys of several kinds, an archive, and a limit that is soon met."""
    directory = tmp_path_factory.mktemp("state")
    keys = "root-secret,reader-secret:read,narrow-secret:read+admin:mine-"
    settings = {
        "API_KEYS": keys,
        "ARCHIVE_DIR": str(directory / "archive"),
        "MAX_TOPICS": "5",
        "REPLICA": f"file://{directory}/replica",
    }
    process = ServerProcess(directory / "data", settings=settings).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def api(guarded: ServerProcess) -> Iterator[Api]:
    """A client that may do everything."""
    with Api(guarded.base_url, key="root-secret") as client:
        yield client


def test_all_of_it(api: Api) -> None:
    ok(api.json("PUT", "/v0/topics/state", {"type": "queue", "durability": "fsync"}), 201)
    ok(api.json("POST", "/v0/topics/state", {"records": [{"data": 1}, {"data": 2}]}))
    ok(api.json("POST", "/v0/topics/state/claim", {"node": "a", "max": 1}))
    state = ok(api.send("GET", STATE))
    assert state["phase"] == "ready"
    assert state["role"] == "writer"
    assert (state["topics"], state["records"]) == (1, 2)
    fsync = next(each for each in state["durability"] if each["durability"] == "fsync")
    assert fsync["topics"] == 1
    assert fsync["reply_waits_for"] == "the sync to the disk"
    assert state["sync"]["count"] >= 2
    assert 0 < state["sync"]["p50_ms"] <= state["sync"]["p99_ms"] <= state["sync"]["max_ms"]
    assert [log["log"] for log in state["logs"]] == ["jobs", "leases"]
    assert all(log["recent"][-1] == log["active_bytes"] for log in state["logs"])
    assert state["disk"]["logs_bytes"] == sum(log["bytes"] for log in state["logs"])
    assert state["disk"]["read_only"] is False
    parts = state["memory"]["parts"]
    assert sum(part["bytes"] for part in parts) >= state["memory"]["resident_bytes"]
    assert state["archive"]["failing"] is False
    assert state["replica"]["url"].startswith("file://")
    assert state["connections"]["open"] >= 1
    topics = next(limit for limit in state["limits"] if limit["name"] == "max_topics")
    assert (topics["used"], topics["max"]) == (1, 5)
    assert state["backup"] is None


def test_no_secret_is_in_it(api: Api) -> None:
    text = json.dumps(ok(api.send("GET", STATE)))
    for secret in ("root-secret", "reader-secret", "narrow-secret"):
        assert secret not in text
    settings = {each["name"]: each["value"] for each in json.loads(text)["settings"]}
    assert settings["LOGQUEUE_API_KEYS"] == "set (3)"


def test_a_limit_that_is_nearly_met_is_a_finding(api: Api) -> None:
    for name in ("a", "b", "c"):
        ok(api.json("PUT", f"/v0/topics/near-{name}", {}), 201)
    health = ok(api.send("GET", STATE))["health"]
    assert health["state"] in ("attention", "bad")
    finding = next(each for each in health["findings"] if each["code"] == "limit_near")
    assert finding["text"] == "80% of the maximum number of topics is in use (4 of 5)."
    assert "LOGQUEUE_MAX_TOPICS" in finding["advice"]
    ok(api.json("PUT", "/v0/topics/near-d", {}), 201)
    health = ok(api.send("GET", STATE))["health"]
    assert health["state"] == "bad"
    assert health["findings"][0]["code"] == "limit_reached"
    for name in ("a", "b", "c", "d"):
        ok(api.send("DELETE", f"/v0/topics/near-{name}"))


def test_who_may_ask(guarded: ServerProcess) -> None:
    with Api(guarded.base_url) as anonymous:
        refused(anonymous.send("GET", STATE), 401, "unauthorized")
    with Api(guarded.base_url, key="reader-secret") as reader:
        ok(reader.send("GET", STATE))
        refused(reader.json("PUT", LEVEL, {"level": "debug"}), 403, "forbidden")
    with Api(guarded.base_url, key="narrow-secret") as narrow:
        refused(narrow.send("GET", STATE), 403, "forbidden")
        refused(narrow.json("PUT", LEVEL, {"level": "debug"}), 403, "forbidden")


def test_the_log_level_is_changed_and_returns(api: Api) -> None:
    changed = ok(api.json("PUT", LEVEL, {"level": "debug", "for_ms": 600_000}))
    assert changed["level"] == "debug"
    assert changed["configured"] == "info"
    assert changed["until"] > 0
    assert ok(api.send("GET", STATE))["log_level"]["level"] == "debug"
    assert ok(api.json("PUT", LEVEL, {"level": "warning"}))["until"] is None
    ok(api.json("PUT", LEVEL, {"level": "error", "for_ms": 1}))

    def returned() -> bool:
        level: str = ok(api.send("GET", STATE))["log_level"]["level"]
        return level == "info"

    eventually(returned)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"level": "loud"},
        {"level": 10},
        {"level": "debug", "for_ms": 0},
        {"level": "debug", "for_ms": 604_800_001},
        {"level": "debug", "for_ms": "10m"},
    ],
)
def test_bad_levels_change_nothing(api: Api, body: dict[str, object]) -> None:
    before = ok(api.send("GET", STATE))["log_level"]
    refused(api.json("PUT", LEVEL, body), 400, "invalid_request")
    assert ok(api.send("GET", STATE))["log_level"] == before
