"""Large bodies are read in small steps, and as they would be read at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any

import msgspec
import pytest

from logqueue.api.bodies import feeds as feed_bodies
from logqueue.api.bodies import large as large_bodies
from logqueue.api.bodies import producers as producer_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.errors import BatchTooLarge, InvalidRequest, LogqueueError, RecordTooLarge

MIB = 1 << 20


def ignored(names: Sequence[str]) -> None:
    """Ignored members are dropped."""


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What steps come to, and how many there were."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def outcome(read: Callable[[], Any]) -> object:
    """What a reading comes to, fit for comparing."""
    try:
        body = read()
    except LogqueueError as refusal:
        return type(refusal)
    found = json.loads(msgspec.json.encode(body))
    # What a record does not say is absent or null, by which of its types it was read as.
    for record in found.get("records", ()):
        for member in [member for member, value in record.items() if value is None]:
            del record[member]
    return found


BODIES = {
    "plain": b'{"records":[{"data":1},{"data":"x"}]}',
    "spaced": b' { "node" : "n" ,\n"records" : [ { "data" : [ 1 , " 2 " ] } , { "data" : 2 } ] } ',
    "tags": b'{"records":[{"data":1,"tag":"t","meta":{"a":1},"node":"n"}],"idempotency_key":"k"}',
    "jobs": b'{"records":[{"data":1},{"data":2,"key":"k","delay_ms":5}]}',
    "unknown": b'{"x":1,"records":[{"data":1,"y":2}],"config":{"z":3}}',
    "not-ascii": '{"records":[{"data":"é\\u00e9€","tag":"ü"}],"node":"ß"}'.encode(),
    "escaped-name": b'{"re\\u0063ords":[{"data":1}]}',
    "none": b'{"records":[]}',
    "missing": b'{"node":"n"}',
    "no-array": b'{"records":{}}',
    "no-object": b'[{"records":[]}]',
    "empty": b"",
    "blanks": b" \n ",
    "open": b'{"records":[{"data":1}',
    "trailing": b'{"records":[{"data":1}]}}',
    "trailing-comma": b'{"records":[{"data":1},]}',
    "member-comma": b'{"records":[{"data":1}],}',
    "no-colon": b'{"records" [{"data":1}]}',
    "no-name": b'{1:2,"records":[{"data":1}]}',
    "nan": b'{"records":[{"data":NaN}]}',
    "no-data": b'{"records":[{"tag":"t"}]}',
    "bad-type": b'{"records":[{"data":1,"tag":5}]}',
    "not-utf-8": b'{"records":[{"data":"\xff"}]}',
    "numbers": b'{"records":[{"data":-1.5e+3},{"data":%b}]}' % (b"9" * 300),
    "deep": b'{"records":[{"data":' + b"[" * 2000 + b"]" * 2000 + b"}]}",
}


@pytest.mark.parametrize("name", BODIES)
def test_writes_read_as_at_once(name: str) -> None:
    body = BODIES[name]
    told: list[list[str]] = [[], []]
    at_once = outcome(lambda: record_bodies.read_append_body(body, told[0].extend))
    in_steps = outcome(lambda: run(large_bodies.read_append(body, told[1].extend))[0])
    assert in_steps == at_once
    assert sorted(told[1]) == sorted(told[0])


@pytest.mark.parametrize("name", BODIES)
def test_chunks_and_messages_read_as_at_once(name: str) -> None:
    body = BODIES[name]
    chunk = body.replace(b"{", b'{"topic":"t",', 1)
    at_once = outcome(lambda: producer_bodies.read_stage_body(chunk))
    assert outcome(lambda: run(large_bodies.read_stage(chunk, ignored))[0]) == at_once
    text = chunk.replace(b"{", b'{"op":"publish",', 1)
    if b"\xff" not in text:
        at_once = outcome(lambda: feed_bodies.read_message(text))
        assert outcome(lambda: run(large_bodies.read_socket_message(text, ignored))[0]) == at_once


def records(*texts: bytes) -> bytes:
    """A write of these records."""
    return b'{"records":[' + b",".join(texts) + b"]}"


@pytest.mark.parametrize(
    ("body", "expected", "steps_min"),
    [
        (b" " * (8 * MIB), InvalidRequest, 60),
        (b" " * (8 * MIB) + records(b'{"data":1}'), 1, 60),
        (records(b" " * (8 * MIB) + b'{"data":1}'), 1, 60),
        (records(b'{"data":' + b" " * (8 * MIB) + b"1}"), RecordTooLarge, 0),
        (records(b'{"data":"' + b"x" * (8 * MIB) + b'"}'), RecordTooLarge, 0),
        (records(b'{"data":[' + b"1," * (4 * MIB) + b"1]}"), RecordTooLarge, 0),
        (b"[" * (8 * MIB), InvalidRequest, 0),
        (records(*[b'{"data":[' + b"1," * 200_000 + b"1]}"] * 20), 20, 30),
        (records(*[b'{"data":"' + b"x" * 900 + b'"}'] * 10_000), 10_000, 60),
        (records(*[b'{"data":1}'] * 10_001), BatchTooLarge, 40),
        (b"{" + b'"node":"n",' * 500_000 + records(b'{"data":1}')[1:], InvalidRequest, 400),
    ],
)  # fmt: skip
def test_no_step_grows_with_the_body(body: bytes, expected: object, steps_min: int) -> None:
    """One step looks at 128 KiB, at 200 values, or at one record of at most 2 MiB."""
    steps = large_bodies.read_append(body, ignored)
    count = 0
    found: object
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = len(end.value.records)
            break
        except LogqueueError as refusal:
            found = type(refusal)
            break
        count += 1
    assert found == expected
    assert count >= steps_min


def command(read: Callable[[], Any]) -> object:
    """The command of a body, or its refusal."""
    try:
        return record_bodies.append_command("t", read(), None)
    except LogqueueError as refusal:
        return type(refusal), refusal.message


OUT_OF_BOUNDS: dict[str, dict[str, Any]] = {
    "long-tag": {"data": 1, "tag": "t" * 2000},
    "large-meta": {"data": 1, "meta": {"a": "m" * 70_000}},
    "large": {"data": "x" * (1 << 20)},
    "empty-key": {"data": 1, "key": ""},
    "two-times": {"data": 1, "delay_ms": 1, "not_before": 1},
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_packed_in_steps_is_what_is_packed_at_once(name: str) -> None:
    at_once = command(lambda: record_bodies.read_append_body(BODIES[name], ignored))
    in_steps = command(lambda: run(large_bodies.read_packed_append(BODIES[name], ignored))[0])
    assert in_steps == at_once or isinstance(at_once, tuple)
    assert type(in_steps) is type(at_once)


@pytest.mark.parametrize("kind", ["plain", "meta", "jobs", *OUT_OF_BOUNDS])
def test_a_large_write_is_packed_in_small_steps(kind: str) -> None:
    records: list[dict[str, Any]] = [{"data": "x" * 2000} for _ in range(3000)]
    if kind == "meta":
        records = [{**record, "meta": {"a": 1}, "tag": "t"} for record in records]
    if kind == "jobs":
        records = [{**r, "key": f"k{n}", "delay_ms": n} for n, r in enumerate(records)]
    if kind in OUT_OF_BOUNDS:
        records[1500:1500] = [OUT_OF_BOUNDS[kind], {"data": 1, "tag": "t" * 3000}]
    body = json.dumps({"records": records, "node": "n"}).encode()
    at_once = command(lambda: record_bodies.read_append_body(body, ignored))
    packed, steps = run(large_bodies.read_packed_append(body, ignored))
    assert isinstance(packed.records, record_bodies.PackedRecords)
    assert command(lambda: packed) == at_once
    assert isinstance(at_once, tuple) == (kind in OUT_OF_BOUNDS)
    steps -= run(large_bodies.read_append(body, ignored))[1]
    assert steps >= (6 if kind in OUT_OF_BOUNDS else 15), "no step over 600 KiB"


def staged(read: Callable[[], Any]) -> object:
    """The command of a chunk, or its refusal."""
    try:
        return producer_bodies.stage_command("p", "1", read())
    except LogqueueError as refusal:
        return type(refusal), refusal.message


@pytest.mark.parametrize("kind", ["plain", "jobs", "keyed", "long-tag", "empty"])
def test_large_chunks_and_messages_are_packed_in_small_steps(kind: str) -> None:
    records: list[dict[str, Any]] = [{"data": "x" * 2000} for _ in range(3000)]
    if kind == "jobs":
        records = [{**record, "delay_ms": n} for n, record in enumerate(records)]
    if kind == "keyed":
        records[1500:1500] = [{"data": 1, "tag": "t" * 3000}, {"data": 1, "key": "k"}]
    if kind == "long-tag":
        records[1500:1500] = [OUT_OF_BOUNDS[kind]]
    if kind == "empty":
        records = []
    body = json.dumps({"topic": "t", "records": records, "node": "n"}).encode()
    packed, steps = run(large_bodies.read_packed_stage(body, ignored))
    assert isinstance(packed.records, record_bodies.PackedRecords)
    assert staged(lambda: packed) == staged(lambda: producer_bodies.read_stage_body(body))
    assert steps - run(large_bodies.read_stage(body, ignored))[1] >= {"keyed": 0, "empty": 0}.get(
        kind, 6
    )
    text = body.replace(b"{", b'{"op":"publish",', 1)
    message, steps = run(large_bodies.read_packed_message(text, ignored))
    assert isinstance(message, feed_bodies.Publish)
    assert isinstance(message.records, record_bodies.PackedRecords)
    assert command(lambda: message) == command(lambda: feed_bodies.read_message(text))
    assert steps - run(large_bodies.read_socket_message(text, ignored))[1] >= bool(records) * 6


@pytest.mark.parametrize(
    ("members", "are_jobs", "unknown"),
    [
        (b'"records":[{"data":1}]', False, []),
        (b'"node":"n","records":[{"data":1,"tag":"t","node":"m","meta":{}}]', False, []),
        (b'"config":{"type":"log","early":1},"records":[{"data":1}]', False, ["config.early"]),
        (b'"records":[{"data":1},{"data":2,"key":"k"}]', True, []),
        (b'"records":[{"data":1,"early":1}]', True, ["records[].early"]),
        (b'"records":[{"data":1}],"early":1', True, ["early"]),
    ],
)
def test_a_published_write_pays_only_for_what_its_records_say(
    members: bytes, are_jobs: bool, unknown: list[str]
) -> None:
    """As the same write by POST does."""
    found: list[str] = []
    posted: list[str] = []
    text = b'{"op":"publish","topic":"t",%b}' % members
    message = feed_bodies.read_message(text, found.extend)
    body = record_bodies.read_append_body(b"{%b}" % members, posted.extend)
    assert isinstance(message, feed_bodies.Publish)
    assert (message.are_jobs, found) == (are_jobs, unknown) == (body.are_jobs, posted)
    commands = [record_bodies.append_command("t", write, None) for write in (message, body)]
    assert commands[0] == commands[1]
