"""GET /v0/topics: entries, order, pages and cursors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.api import Api
from tests.http.expect import ok, plain_ok, refused
from tests.http.process import ServerProcess

CROWD = 1005


def names_of(body: dict[str, list[dict[str, str]]]) -> list[str]:
    """Topic names of a page, in order."""
    return [entry["topic"] for entry in body["topics"]]


def make(api: Api, *names: str) -> None:
    """Topics with these names."""
    for name in names:
        ok(api.put(name), 201)


def test_entries(api: Api, topic: str) -> None:
    """The fields of an entry."""
    make(api, f"{topic}a")
    ok(api.put(f"{topic}b", type="queue", durable=True, priority=3), 201)
    api.append(f"{topic}b", "xx", "yy")
    body = ok(api.topics(prefix=topic))
    assert {"topics", "performance"} <= set(body)
    assert "next_cursor" not in body
    first, second = body["topics"]
    wanted = {
        "topic": f"{topic}b",
        "head_seq": 2,
        "earliest_seq": 1,
        "count": 2,
        "bytes": 8,
        "durable": True,
        "effective_priority": 3,
    }
    assert {name: second[name] for name in wanted} == wanted
    assert (first["head_seq"], first["earliest_seq"], first["count"]) == (0, 1, 0)


def test_nothing_found(api: Api, topic: str) -> None:
    """200 with an empty list."""
    body = ok(api.topics(prefix=topic))
    assert body["topics"] == []
    assert "next_cursor" not in body


def test_names_come_in_byte_order(api: Api, topic: str) -> None:
    """Upper case before lower case, digits first, - before ., shorter before longer."""
    made = [f"{topic}{end}" for end in ("b", "a", "B", "0", "a-", "a.", "a0", "a:", "a_", "aa")]
    make(api, *made)
    assert names_of(ok(api.topics(prefix=topic))) == sorted(made)


def test_pages(api: Api, topic: str) -> None:
    """Each name once, in order; no cursor behind the last page."""
    made = sorted(f"{topic}{number}" for number in range(7))
    make(api, *made)
    found: list[str] = []
    cursor = ""
    sizes = []
    while True:
        body = ok(api.topics(prefix=topic, page_size=3, cursor=cursor))
        found += names_of(body)
        sizes.append(len(body["topics"]))
        if "next_cursor" not in body:
            break
        cursor = body["next_cursor"]
    assert (found, sizes) == (made, [3, 3, 1])


def test_a_page_that_ends_with_the_last_name_has_no_cursor(api: Api, topic: str) -> None:
    """next_cursor only when more remains."""
    make(api, f"{topic}a", f"{topic}b")
    body = ok(api.topics(prefix=topic, page_size=2))
    assert len(body["topics"]) == 2
    assert "next_cursor" not in body


def test_a_cursor_needs_no_escaping(api: Api, topic: str) -> None:
    """URL-safe base64 without padding, pasted into the URL as it is."""
    made = [f"{topic}{'?>~'[index:]}".replace("?", "x").replace(">", "y").replace("~", "z")
            for index in range(3)]  # fmt: skip
    make(api, *made)
    for _ in range(2):
        body = ok(api.topics(prefix=topic, page_size=1))
        cursor = body["next_cursor"]
        assert set(cursor) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        )
        ok(api.send("GET", f"/v0/topics?prefix={topic}&cursor={cursor}"))


def test_a_cursor_names_a_position(api: Api, topic: str) -> None:
    """Case 19: the topic of the cursor may be gone; new ones appear by name order."""
    make(api, f"{topic}a", f"{topic}c", f"{topic}e")
    cursor = ok(api.topics(prefix=topic, page_size=2))["next_cursor"]
    ok(api.delete_topic(f"{topic}c"))
    make(api, f"{topic}b", f"{topic}d")
    body = ok(api.topics(prefix=topic, cursor=cursor))
    assert names_of(body) == [f"{topic}d", f"{topic}e"]


def test_a_cursor_past_the_end(api: Api, topic: str) -> None:
    """Case 19: nothing left is an empty page without a cursor."""
    make(api, f"{topic}a", f"{topic}b")
    cursor = ok(api.topics(prefix=topic, page_size=1))["next_cursor"]
    ok(api.delete_topic(f"{topic}b"))
    body = ok(api.topics(prefix=topic, cursor=cursor))
    assert body["topics"] == []
    assert "next_cursor" not in body


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("alphabet", ["standard", "url-safe"])
def test_cursors_by_hand(api: Api, topic: str, padded: bool, alphabet: str) -> None:
    """Standard base64 is taken as well, with or without padding."""
    make(api, f"{topic}a", f"{topic}b")
    text = json.dumps({"after": f"{topic}a"}).encode()
    encode = base64.b64encode if alphabet == "standard" else base64.urlsafe_b64encode
    cursor = encode(text).decode()
    cursor = cursor if padded else cursor.rstrip("=")
    assert names_of(ok(api.topics(prefix=topic, cursor=cursor))) == [f"{topic}b"]


def test_a_cursor_without_a_name_is_the_start(api: Api, topic: str) -> None:
    """Case 19: an empty text, or JSON that names nothing."""
    make(api, f"{topic}a")
    for cursor in ("", base64.b64encode(b"{}").decode()):
        assert names_of(ok(api.topics(prefix=topic, cursor=cursor))) == [f"{topic}a"]


@pytest.mark.parametrize(
    "cursor",
    [
        "%%%",  # case 19
        "%%%not-base64%%%",
        "!!!!",
        "a",
        "ä",
        base64.b64encode(b"no json").decode(),
        base64.b64encode(b'{"after":').decode(),
        base64.b64encode(b"\xff\xfe").decode(),
        base64.b64encode(b"[" * 20_000).decode(),
    ],
)
def test_bad_cursors(api: Api, cursor: str) -> None:
    """Case 19: 400."""
    refused(api.topics(cursor=cursor), 400, "invalid_request", None)


def test_listing_is_no_reading(api: Api, topic: str) -> None:
    """LIST leaves last_read_ts alone, with touch=true as well."""
    make(api, topic)
    ok(api.topics(prefix=topic))
    ok(api.topics(prefix=topic, touch="true"))
    ok(api.topics(prefix=topic, touch="maybe"))
    assert api.facts(topic, "last_read_ts") == (None,)


# -- more topics than any page holds ------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with 1005 topics."""
    process = ServerProcess(tmp_path_factory.mktemp("crowded") / "data").start()
    with Api(process.base_url) as client, ThreadPoolExecutor(8) as pool:
        names = [f"t{number:04}" for number in range(CROWD)]
        statuses = pool.map(lambda name: client.put(name).status_code, names)
        assert set(statuses) == {201}
        yield client
    process.stop()


@pytest.mark.parametrize(
    ("page_size", "expected"),
    [
        (None, 100),
        ("0", 1),  # case 18
        ("1", 1),
        ("7", 7),
        ("1000", 1000),
        ("1001", 1000),
        ("99999", 1000),  # case 18
        ("-5", 100),  # case 18
        ("abc", 100),  # case 18
        ("", 100),
        ("1.5", 100),
        ("1e3", 100),
        ("18446744073709551616", None),
    ],
)
def test_page_sizes(crowded: Api, page_size: str | None, expected: int | None) -> None:
    """Case 18: defaults and clamps, never an error."""
    body = ok(crowded.topics() if page_size is None else crowded.topics(page_size=page_size))
    assert len(body["topics"]) in ((expected,) if expected else (100, 1000))
    assert "next_cursor" in body


def test_all_pages_of_a_crowd(crowded: Api) -> None:
    """Nothing twice, nothing left out."""
    found: list[str] = []
    body = ok(crowded.topics(page_size=250))
    while True:
        found += names_of(body)
        if "next_cursor" not in body:
            break
        body = ok(crowded.topics(page_size=250, cursor=body["next_cursor"]))
    assert found == [f"t{number:04}" for number in range(CROWD)]


def test_metrics_of_a_crowd(crowded: Api) -> None:
    """Per-topic series stop at the first 1000 topics, and a gauge says that they do."""
    assert plain_ok(crowded.send("GET", "/v0/ready"))["topics"] == CROWD
    lines = crowded.send("GET", "/v0/metrics").text.splitlines()
    per_topic: dict[str, int] = {}
    for line in lines:
        if '{topic="' in line:
            name = line.partition("{")[0]
            per_topic[name] = per_topic.get(name, 0) + 1
    queues = {name: count for name, count in per_topic.items() if name.endswith("_total")}
    assert queues.keys() < per_topic.keys()
    assert {per_topic[name] for name in per_topic.keys() - queues.keys()} == {1000}, per_topic
    assert any("truncated" in line and line.endswith((" 1", " 1.0")) for line in lines)
