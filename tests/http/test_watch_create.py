"""Watch sessions: the body, the clamps, the answer, the order of checks."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.api import JSON, Api
from tests.http.expect import Json, ok, refused
from tests.http.watching import drain, seqs_in

WID = re.compile(r"wid_[A-Za-z0-9_-]{22}")


def test_the_answer(api: Api, log: str) -> None:
    """200; where each topic begins; the path of the stream."""
    api.append(log, 1, 2, 3)
    body = ok(api.create_watch({log: {"from_seq": 1}}))
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert WID.fullmatch(body["wid"]), body
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {log: {"from_seq": 1, "head_seq": 3, "earliest_seq": 1}}


@pytest.mark.parametrize(
    ("options", "from_seq"),
    [
        ({}, 0),
        ({"from_seq": 0}, 0),
        ({"from_seq": 2}, 2),
        ({"from_seq": 3}, 3),
        ({"from_seq": 99}, 99),
        ({"from_seq": 2**64 - 1}, 2**64 - 1),
        ({"tail": True}, 3),
        ({"tail": False}, 0),
        ({"from_seq": 1, "tail": True}, 3),  # case 87
        ({"from_seq": 99, "tail": True}, 3),  # case 87
        ({"from_seq": 1, "tail": False}, 1),
        ({"no_such": 1}, 0),
    ],
    ids=str,
)
def test_where_it_begins(api: Api, log: str, options: Json, from_seq: int) -> None:
    """Case 87: as given, or at the head; tail wins."""
    api.append(log, 1, 2, 3)
    body = ok(api.create_watch({log: options}))
    assert body["topics"] == {log: {"from_seq": from_seq, "head_seq": 3, "earliest_seq": 1}}


def test_positions_of_several_topics(api: Api, topic: str) -> None:
    """An empty one, a trimmed one, a queue."""
    empty, trimmed, queue = f"{topic}empty", f"{topic}trimmed", f"{topic}queue"
    api.make_log(empty)
    api.make_log(trimmed, cap_records=2)
    api.make_queue(queue)
    api.append(trimmed, *range(5))
    api.append(queue, 1)
    body = ok(api.create_watch({queue: {}, empty: {"tail": True}, trimmed: {"tail": True}}))
    assert body["topics"] == {
        empty: {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
        trimmed: {"from_seq": 5, "head_seq": 5, "earliest_seq": 4},
        queue: {"from_seq": 0, "head_seq": 1, "earliest_seq": 1},
    }


def test_every_session_is_its_own(api: Api, log: str) -> None:
    """Random names, also for equal bodies made at once."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: api.create_watch({log: {}}), range(40)))
    wids = {ok(reply)["wid"] for reply in replies}
    assert len(wids) == 40
    assert len({wid[4:12] for wid in wids}) == 40, "the first characters are not random"


def test_creating_is_not_reading(api: Api, log: str) -> None:
    """It neither reads nor makes topics."""
    ok(api.create_watch({log: {}}))
    assert api.facts(log, "last_read_ts") == (None,)
    refused(api.create_watch({log: {}, f"{log}no": {}}), 404, "topic_not_found")
    refused(api.state(f"{log}no"), 404, "topic_not_found")
    ok(api.create_watch({f"{log}no": {}}, query="?lenient=true"))
    refused(api.state(f"{log}no"), 404, "topic_not_found")


BAD_BODIES: list[object] = [
    {},
    [],
    {"topics": {}},
    {"topics": None},
    {"topics": []},
    {"topics": "{t}"},
    {"topics": ["{t}"]},
    {"topics": {"{t}": None}},
    {"topics": {"{t}": []}},
    {"topics": {"{t}": 0}},
    {"topics": {"{t}": {"from_seq": -1}}},
    {"topics": {"{t}": {"from_seq": 1.0}}},
    {"topics": {"{t}": {"from_seq": "1"}}},
    {"topics": {"{t}": {"from_seq": None}}},
    {"topics": {"{t}": {"from_seq": 2**64}}},
    {"topics": {"{t}": {"from_seq": True}}},
    {"topics": {"{t}": {"tail": None}}},
    {"topics": {"{t}": {"tail": 1}}},
    {"topics": {"{t}": {"tail": "true"}}},
]
BAD_FIELDS: list[Json] = [
    {"node": 1},
    {"node": [1]},
    {"node": [None]},
    {"node": {}},
    {"limit": -1},
    {"limit": 1.0},
    {"limit": None},
    {"limit": 2**32},
    {"max_batch_bytes": -1},
    {"max_batch_bytes": None},
    {"max_batch_bytes": 2**64},
    {"heartbeat_ms": -1},
    {"heartbeat_ms": None},
    {"heartbeat_ms": "1000"},
    {"heartbeat_ms": 2**64},
    {"include_meta": None},
    {"include_meta": 1},
    {"include_tags": None},
    {"include_tags": "yes"},
    {"include_data": None},
    {"include_data": 0},
    {"consistency": None},
    {"consistency": "Strong"},
    {"consistency": ""},
    {"consistency": "linearizable"},
    {"consistency": 1},
]


def named(body: object, topic: str) -> object:
    """A body with the topic's name where the table has a placeholder."""
    if isinstance(body, dict):
        return {key.replace("{t}", topic): named(value, topic) for key, value in body.items()}
    if isinstance(body, list):
        return [named(value, topic) for value in body]
    return body.replace("{t}", topic) if isinstance(body, str) else body


@pytest.mark.parametrize("body", BAD_BODIES, ids=str)
def test_bad_bodies(api: Api, log: str, body: object) -> None:
    """400, and no session."""
    refused(api.json("POST", "/v0/watch", named(body, log)), 400, "invalid_request")


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=str)
def test_bad_fields(api: Api, log: str, fields: Json) -> None:
    """400, before the topics are looked for."""
    refused(api.create_watch({log: {}}, **fields), 400, "invalid_request")
    refused(api.create_watch({f"{log}no": {}}, **fields), 400, "invalid_request")


@pytest.mark.parametrize(
    "fields",
    [
        {"node": None},
        {"node": "n"},
        {"node": []},
        {"node": ["a", "b"]},
        {"node": "n" * 1000},
        {"limit": 0},
        {"limit": 2**32 - 1},
        {"max_batch_bytes": 0},
        {"max_batch_bytes": 2**64 - 1},
        {"heartbeat_ms": 0},  # case 90
        {"heartbeat_ms": 10**9},  # case 90
        {"heartbeat_ms": 2**64 - 1},
        {"include_meta": False, "include_tags": True, "include_data": False},
        {"consistency": "eventual"},
        {"consistency": "strong"},
        {"no_such": [1]},
    ],
    ids=str,
)
def test_good_fields(api: Api, log: str, fields: Json) -> None:
    """Case 90: numbers are clamped, unknown fields ignored; the stream opens."""
    with api.watch(log, **fields) as stream:
        assert stream.status == 200
        assert stream.next_frame().retry == "2000"
        assert drain(stream)[-1].json()["head_seq"] == 0


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"", None, 415, "unsupported_media_type"),
        (b"", "application/json", 400, "invalid_request"),
        (b"{}", None, 415, "unsupported_media_type"),
        (b"{", "text/plain", 415, "unsupported_media_type"),  # case 7
        (b"{", "application/json", 400, "invalid_request"),
        (b'{"topics":{}} {}', "application/json", 400, "invalid_request"),
        (b"null", "application/json", 400, "invalid_request"),
    ],
    ids=str,
)
def test_content_types(
    api: Api, body: bytes, content_type: str | None, status: int, code: str
) -> None:
    """415 before 400."""
    headers = {"content-type": content_type} if content_type else {}
    refused(api.send("POST", "/v0/watch", body, headers), status, code)


def test_how_many_topics(api: Api, log: str) -> None:
    """Case 88: 256 at most, counted before they are looked for."""
    many: Json = {f"{log}{number}": {} for number in range(257)}
    refused(api.create_watch(many), 400, "invalid_request")
    refused(api.create_watch(many, query="?lenient=true"), 400, "invalid_request")
    del many[f"{log}0"]
    refused(api.create_watch(many), 404, "topic_not_found")
    assert ok(api.create_watch(many, query="?lenient=true"))["topics"] == {}


def test_256_topics(api: Api, topic: str) -> None:
    """The largest session works: each topic says that it is caught up, in name order."""
    names = [f"{topic}{number:03}" for number in range(256)]
    with ThreadPoolExecutor(8) as pool:
        for reply in pool.map(lambda name: api.put(name, durability="ephemeral"), names):
            ok(reply, 201)
    api.append(names[7], "seven")
    with api.watch(*reversed(names)) as stream:
        frames = drain(stream, 256)
        ends = [frame.json()["topic"] for frame in frames if frame.event == "caught-up"]
        assert ends == names
        assert seqs_in(frames, names[7]) == [1]
        api.append(names[200], "late")
        assert drain(stream)[0].json()["topic"] == names[200]


def test_unknown_topics(api: Api, log: str) -> None:
    """404 with the name; invalid names are just absent."""
    absent = f"{log}no"
    refused(api.create_watch({log: {}, absent: {}}), 404, "topic_not_found", {"topic": absent})
    for name in ("", "-x", "a/b", "ä", "x" * 256):
        refused(api.create_watch({name: {}}), 404, "topic_not_found", {"topic": name})


@pytest.mark.parametrize(
    ("query", "lenient"),
    [
        ("?lenient=true", True),
        ("?lenient=1", True),
        ("?lenient=false", False),
        ("?lenient=0", False),
        ("?lenient=", False),
        ("?lenient=TRUE", False),
        ("?lenient=yes", False),
        ("", False),
    ],
)
def test_lenient(api: Api, log: str, query: str, lenient: bool) -> None:
    """Unknown topics are dropped instead of 404."""
    reply = api.create_watch({log: {}, f"{log}no": {}}, query=query)
    if lenient:
        assert set(ok(reply)["topics"]) == {log}
    else:
        refused(reply, 404, "topic_not_found")


def test_lenient_is_no_body_field(api: Api, log: str) -> None:
    """In the body it is an unknown field."""
    refused(api.create_watch({f"{log}no": {}}, lenient=True), 404, "topic_not_found")


def test_nothing_left_to_watch(api: Api, topic: str) -> None:
    """Case 89: 200 with no topics; the stream says retry and ends."""
    session = ok(api.create_watch({topic: {}, f"{topic}b": {}}, query="?lenient=true"))
    assert session["topics"] == {}
    with api.open_watch(session["wid"]) as stream:
        assert stream.status == 200
        assert stream.next_frame().retry == "2000"
        assert stream.ended()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods(api: Api, method: str) -> None:
    """405 on the collection."""
    refused(api.send(method, "/v0/watch"), 405, "method_not_allowed")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_on_a_session(api: Api, log: str, method: str) -> None:
    """405 on a session, known or not."""
    wid = ok(api.create_watch({log: {}}))["wid"]
    for name in (wid, "wid_no"):
        reply = api.send(method, f"/v0/watch/{name}", b"{}", JSON)
        refused(reply, 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/v0/watch/", "/v0/watch/wid_x/", "/v0/watch/a/b"])
def test_other_paths(api: Api, path: str) -> None:
    """A trailing slash or a further segment is another route."""
    refused(api.send("GET", path), 404, "not_found")
