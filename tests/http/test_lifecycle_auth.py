"""Scopes and prefixes on every route of the job life cycle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.api import Api
from tests.http.conftest import ApiFor
from tests.http.expect import Json, ok, refused
from tests.http.process import ServerProcess

SCOPES = ("read", "write", "delete", "admin")

# Method, path below the topic, body, scopes that are needed.
ROUTES: list[tuple[str, str, Json | None, set[str]]] = [
    ("PATCH", "", {"cap_records": 0}, {"admin"}),
    ("POST", "/pause", None, {"admin"}),
    ("POST", "/resume", None, {"admin"}),
    ("POST", "/reject", {"node": "w", "seqs": []}, {"write"}),
    ("GET", "/jobs", None, {"read"}),
    ("GET", "/jobs/1", None, {"read"}),
    ("DELETE", "/jobs/99", None, {"delete"}),
    ("DELETE", "/keys/none", None, {"delete"}),
    ("POST", "/purge", {"states": ["held"]}, {"delete"}),
    ("POST", "/release", {"seqs": []}, {"admin"}),
    ("POST", "/redrive", {"limit": 1}, {"write", "delete"}),
    ("GET", "/workers", None, {"read"}),
]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a key for each set of scopes that matters, and keys with prefixes."""
    entries = ["root"]
    entries += [f"only-{scope}:{scope}" for scope in SCOPES]
    for scope in SCOPES:
        rest = "+".join(other for other in SCOPES if other != scope)
        entries.append(f"not-{scope}:{rest}")
    entries += ["mine::mine.", "mine-and-dead::mine.|dead."]
    process = ServerProcess(
        tmp_path_factory.mktemp("locked") / "data",
        settings={"API_KEYS": ",".join(entries)},
        probe_key="root",
    ).start()
    with Api(process.base_url, key="root") as root:
        for name in ("mine.q", "other.q"):
            root.make_queue(name, dead_letter="dead.q")
            root.append(name, 1)
    yield process
    process.stop()


def call(api: Api, topic: str, method: str, path: str, body: Json | None) -> httpx.Response:
    """One call below a topic."""
    if body is None:
        return api.send(method, f"/v0/topics/{topic}{path}")
    return api.json(method, f"/v0/topics/{topic}{path}", body)


@pytest.mark.parametrize(("method", "path", "body", "needed"), ROUTES)
def test_scopes(
    locked: ServerProcess,
    api_for: ApiFor,
    method: str,
    path: str,
    body: Json | None,
    needed: set[str],
) -> None:
    """Exactly the scopes that the route names; no scope includes another."""
    for scope in SCOPES:
        without = call(api_for(locked, f"not-{scope}"), "mine.q", method, path, body)
        alone = call(api_for(locked, f"only-{scope}"), "mine.q", method, path, body)
        if scope in needed:
            refused(without, 403, "forbidden", None)
        else:
            ok(without)
        if needed == {scope}:
            ok(alone)
        else:
            refused(alone, 403, "forbidden", None)
    refused(call(api_for(locked), "mine.q", method, path, body), 401, "unauthorized", None)


@pytest.mark.parametrize(("method", "path", "body", "needed"), ROUTES)
def test_prefixes(
    locked: ServerProcess,
    api_for: ApiFor,
    method: str,
    path: str,
    body: Json | None,
    needed: set[str],
) -> None:
    """The topic's name decides, also where the path goes on behind it."""
    api = api_for(locked, "mine")
    ok(call(api, "mine.q", method, path, body))
    refused(call(api, "other.q", method, path, body), 403, "forbidden", None)
    refused(call(api, "%6fther.q", method, path, body), 403, "forbidden", None)
    refused(call(api, "none.q", method, path, body), 403, "forbidden", None)


@pytest.mark.parametrize("path", ["/jobs/1/2", "/keys/a/b", "/nothing/at/all"])
def test_longer_unknown_paths(locked: ServerProcess, api_for: ApiFor, path: str) -> None:
    """401 without a key, 404 with one."""
    refused(api_for(locked).send("GET", f"/v0/topics/mine.q{path}"), 401, "unauthorized")
    refused(api_for(locked, "root").send("GET", f"/v0/topics/mine.q{path}"), 404, "not_found")


@pytest.mark.parametrize("field", ["dead_letter", "archive"])
@pytest.mark.parametrize("how", ["put", "patch", "write"])
def test_targets_of_copies(
    locked: ServerProcess, api_for: ApiFor, tmp_path: Path, field: str, how: str
) -> None:
    """No key reaches a topic outside its prefixes by way of copies."""
    api = api_for(locked, "mine")
    name = f"mine.{how}.{field}"

    def send(target: str) -> httpx.Response:
        config: dict[str, Any] = {"type": "queue", field: target}
        if how == "put":
            return api.put(name, **config)
        if how == "patch":
            return api.patch(name, **{field: target})
        return api.write(f"{name}.{target}", [{"data": 1}], config=config)

    if how == "patch":
        api.make_queue(name)
    refused(send("dead.q"), 403, "forbidden", {"topic": "dead.q"})
    assert send("mine.dead").status_code in (200, 201)


def test_redrive_stays_within_the_prefixes(locked: ServerProcess, api_for: ApiFor) -> None:
    """`to` and every source that a record names."""
    root = api_for(locked, "root")
    for name in ("mine.src", "other.src"):
        root.make_queue(name, dead_letter="mine.dead.letters")
        root.append(name, name)
        root.claimed(name)
        ok(root.reject(name, [1]))
    mine = api_for(locked, "mine")
    refused(
        mine.post("mine.dead.letters", "redrive", to="other.src"),
        403, "forbidden", {"topic": "other.src"},
    )  # fmt: skip
    refused(mine.post("mine.dead.letters", "redrive"), 403, "forbidden", None)
    assert root.facts("mine.dead.letters", "count") == (2,)
    assert ok(mine.post("mine.dead.letters", "redrive", seqs=[1]))["redriven"] == 1
    refused(mine.post("mine.dead.letters", "redrive", dry_run=True), 403, "forbidden", None)
    # A record may name any source: whether it exists must make no difference.
    for name in ("other.src", "other.absent"):
        letter = {"data": 1, "meta": {"$dead_letter_from": name}}
        root.make_log(f"mine.forged.{name}")
        root.append_many(f"mine.forged.{name}", [letter])
        refused(mine.post(f"mine.forged.{name}", "redrive"), 403, "forbidden", None)
    assert ok(mine.post("mine.dead.letters", "redrive", to="mine.src"))["redriven"] == 1
    refused(mine.post("dead.q", "redrive"), 403, "forbidden", None)


def test_what_follows_an_ack_stays_within_the_prefixes(
    locked: ServerProcess, api_for: ApiFor
) -> None:
    """Each topic that is written to, whether it exists or not; a config needs the admin scope."""
    root, mine = api_for(locked, "root"), api_for(locked, "mine")
    root.make_queue("mine.first")
    root.make_queue("other.next")
    root.append("mine.first", 1)
    root.claimed("mine.first")

    def ack(*topics: str, api: Api = mine, **more: Any) -> httpx.Response:
        append = [{"topic": topic, "records": [{"data": 1}], **more} for topic in topics]
        return api.ack("mine.first", [1], append=append)

    for name in ("other.next", "other.absent"):
        refused(ack("mine.second", name), 403, "forbidden", {"topic": name})
    writer = api_for(locked, "only-write")
    refused(ack("mine.second", api=writer, config={"type": "queue"}), 403, "forbidden")
    assert root.facts("mine.first", "in_flight") == (1,)
    assert root.facts("other.next", "head_seq") == (0,)
    assert ok(ack("mine.second"))["acked"] == 1


@pytest.mark.parametrize("way", ["write", "stage", "append", "redrive"])
def test_steps_stay_within_the_prefixes(locked: ServerProcess, api_for: ApiFor, way: str) -> None:
    """However a job with steps is written; its batch, too."""
    root, mine = api_for(locked, "root"), api_for(locked, "mine")
    name = f"mine.{way}"
    root.make_queue(name)
    root.append(name, 1)
    root.claimed(name)
    then = [{"topic": "mine.next", "record": {"data": 1}},
            {"topic": "other.next", "record": {"data": 1}}]  # fmt: skip

    def send(then: list[Json]) -> httpx.Response:
        record = {"data": 1, "then": then}
        if way == "write":
            return mine.write(name, [record])
        if way == "stage":
            body = {"topic": name, "records": [record]}
            return mine.json("POST", f"/v0/producers/mine.{len(then)}/epochs/1/stage", body)
        if way == "append":
            return mine.ack(name, [1], append=[{"topic": name, "records": [record]}])
        meta = {"$dead_letter_from": name, "$dead_letter_then": json.dumps(then)}
        root.make_log(f"mine.forged.{len(then)}")
        root.append_many(f"mine.forged.{len(then)}", [{"data": 1, "meta": meta}])
        return mine.post(f"mine.forged.{len(then)}", "redrive")

    refused(send(then), 403, "forbidden")
    assert root.facts(name, "head_seq") == (1,)
    ok(send(then[:1]))
