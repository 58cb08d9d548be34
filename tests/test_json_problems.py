"""Messages about JSON of a wrong type, or that is not JSON, are in the terms of JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logqueue.api.bodies import large
from logqueue.api.bodies.feeds import read_message
from logqueue.api.bodies.queues import (
    read_ack_body,
    read_claim_body,
)
from logqueue.api.bodies.records import read_append_body
from logqueue.api.bodies.topics import read_config_body
from logqueue.client.calls import encode
from logqueue.errors import InvalidRequest
from logqueue.json_problems import type_problem
from logqueue.model.config import TopicOptions

WRONG: list[tuple[Any, str, str]] = [
    (read_config_body, '{"priority":"x"}', "`priority` must be an integer or null, got a string"),
    (read_claim_body, "[]", "the body must be an object, got an array"),
    (read_claim_body, "{}", "`node` is missing"),
    (read_claim_body, '{"node":7}', "`node` must be a string, got an integer"),
    (
        read_claim_body,
        '{"node":"a","max":1.5}',
        "`max` must be an integer, got a fractional number",
    ),
    (read_claim_body, '{"node":"a","max":true}', "`max` must be an integer, got a boolean"),
    (read_claim_body, '{"node":"a","max":-1}', "`max` must be an integer of at least 0"),
    (
        read_claim_body,
        '{"node":"a","max":4294967296}',
        "`max` must be an integer of at most 4294967295",
    ),
    (read_ack_body, '{"node":"a","seqs":[1,"2"]}', "`seqs[1]` must be an integer, got a string"),
    (read_ack_body, '{"node":"a","seqs":{}}', "`seqs` must be an array, got an object"),
    (
        read_config_body,
        '{"durability":"x"}',
        "`durability` must be one of 'disk', 'ephemeral', 'fsync', 'memory', got 'x'",
    ),
    (
        read_config_body,
        '{"retry_backoff":{"kind":"x"}}',
        "`retry_backoff.kind` must be one of 'constant', 'exponential', 'linear', got 'x'",
    ),
    (read_config_body, '{"retry_backoff":{}}', "`retry_backoff.kind` is missing"),
    (
        read_config_body,
        '{"retry_backoff":3}',
        "`retry_backoff` must be an object or null, got an integer",
    ),
    (
        read_config_body,
        '{"claim_rate":{"per_s":0}}',
        "`claim_rate.per_s` must be a number greater than 0",
    ),
    (read_append_body, '{"records":[{"tag":"t"}]}', "`records[0].data` is missing"),
    (
        read_append_body,
        '{"records":[{"data":1,"on_conflict":"x"}]}',
        "`records[0].on_conflict` must be one of 'keep', 'reject', 'replace', got 'x'",
    ),
    (read_append_body, '{"records":[3]}', "`records[0]` must be an object, got an integer"),
    (read_message, '{"op":"publish","topic":7}', "`topic` must be a string, got an integer"),
    (read_message, "{}", "`op` is missing"),
    (
        read_message,
        '{"op":"x"}',
        "`op` must be one of 'subscribe', 'unsubscribe', 'publish', 'ping', got 'x'",
    ),
]


@pytest.mark.parametrize(("read", "body", "problem"), WRONG)
def test_a_wrong_type_is_named_in_the_terms_of_json(read: Any, body: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(body.encode())
    whole = "invalid message" if read is read_message else "invalid request body"
    assert str(refusal.value) == f"{whole}: {problem}"


def test_a_merged_config_is_checked_in_the_same_words() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        TopicOptions().merged({"lease_ms": "5s"})
    assert str(refusal.value) == "invalid config: `lease_ms` must be an integer, got a string"


def test_what_the_decoder_says_of_other_types_is_kept() -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert("x", tuple[int, ...])
    assert type_problem(wrong.value, tuple[int, ...], "the data") == (
        "the data must be an array, got a string"
    )
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert({"a": []}, dict[str, int | float | str])
    assert type_problem(wrong.value, dict[str, int | float | str], "the data") == (
        "`.*` must be a number or a string, got an array"
    )


HALVES = "\\ud800 to \\udfff come in pairs only, high before low"

NOT_JSON = [
    (r'{"node":"\ud800","seqs":[]}', "invalid surrogate (byte 15): " + HALVES),
    (r'{"seqs":[],"node":"\ud800"}', "invalid surrogate (byte 25): " + HALVES),
    (r'{"seqs":[],"node":"\uDBFFab"}', "invalid surrogate (byte 25): " + HALVES),
    (r'{"seqs":[],"node":"\udc00"}', "invalid surrogate (byte 25): " + HALVES),
    (r'{"seqs":[],"node":"\\\ud800"}', "invalid surrogate (byte 27): " + HALVES),
    (r'{"seqs":[],"node":"\ud83d', "it ends too early"),
    (r'{"seqs":[],"node":"\\ud83d"', "it ends too early"),
    (r'{"seqs":[],"node":"\ud83d\ude00"', "it ends too early"),
    ("", "it ends too early"),
    ("{1:2}", "object keys must be strings (byte 1)"),
]


@pytest.mark.parametrize(("body", "problem"), NOT_JSON)
def test_what_is_not_json_is_refused_with_the_reason(body: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_ack_body(body.encode())
    assert str(refusal.value) == f"the body is not valid JSON: {problem}"


def test_the_place_in_a_large_body_is_that_in_the_whole_of_it() -> None:
    records = ['{"data":"%s"}' % ("x" * 40_000)] * 30 + ['{"data":1,"tag":7}']
    body = '{"records":[' + ",".join(records) + "]}"
    with pytest.raises(InvalidRequest) as refusal:
        for _ in large.read_append(body.encode(), lambda names: None):
            pass
    assert str(refusal.value) == (
        "invalid request body: `records[30].tag` must be a string or null, got an integer"
    )
    cut = body.replace('"tag":7', r'"tag":"\ud800"').encode()
    with pytest.raises(InvalidRequest) as refusal:
        for _ in large.read_append(cut, lambda names: None):
            pass
    at = cut.index(rb"\ud800") + 6
    assert (
        str(refusal.value) == f"the body is not valid JSON: invalid surrogate (byte {at}): {HALVES}"
    )


def test_the_client_names_half_of_a_surrogate_pair_in_what_is_sent() -> None:
    with pytest.raises(UnicodeEncodeError, match=r"udc00.* in position 1: invalid surrogate: "):
        encode({"data": ["a\udc00"]})
