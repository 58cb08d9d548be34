"""Strict typing of every field of every body, table-driven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.api import JSON, Api
from tests.http.expect import ok, refused

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

# Where a field sits: name of the call, field. Lists of seqs are written "seqs[]".
U64_FIELDS = [
    ("put", "ttl_ms"),
    ("put", "cap_records"),
    ("put", "cap_bytes"),
    ("put", "idempotency_window_ms"),
    ("put", "lease_ms"),
    ("put", "claim_jitter_ms"),
    ("put", "max_deliveries"),
    ("claim", "lease_ms"),
    ("nack", "delay_ms"),
    ("extend", "lease_ms"),
    ("ack", "seqs[]"),
    ("nack", "seqs[]"),
    ("extend", "seqs[]"),
    ("diff", "from_seq"),
    ("diff", "max_batch_bytes"),
    ("delete", "before_seq"),
]
U32_FIELDS = [("claim", "max"), ("diff", "limit"), ("diff", "wait_ms")]
I32_FIELDS = [("put", "priority")]
NULL_MEANS_ABSENT = {
    ("put", "priority"),
    ("put", "durability"),
    ("put", "dead_letter"),
    ("claim", "lease_ms"),
    ("diff", "node"),
    ("write", "node"),
    ("write", "idempotency_key"),
    ("write", "create"),
    ("write", "config"),
    ("record", "tag"),
    ("record", "node"),
    ("record", "meta"),
}
NOT_INTEGERS = [
    "1.0", "0.0", "-0.0", "1e3", "1E0", "1.5", '"1"', '""', "true", "false", "[]", "[1]", "{}",
]  # fmt: skip


def integer_rows() -> Iterator[tuple[str, str, str, bool]]:
    """Every integer field with every value that matters: call, field, JSON text, accepted."""
    for call, field in U64_FIELDS + U32_FIELDS + I32_FIELDS:
        for text in NOT_INTEGERS:
            yield call, field, text, False
        yield call, field, str(2**64), False
        yield call, field, "1" + "0" * 400, False
        yield call, field, "-" + "1" * 400, False
        yield call, field, "0", True
        yield call, field, "1", True
        if (call, field) != ("delete", "before_seq"):  # null there is "no selector", case 80
            yield call, field, "null", (call, field) in NULL_MEANS_ABSENT
    for call, field in U64_FIELDS + U32_FIELDS:
        yield call, field, "-1", False
        yield call, field, "-0.5", False
        yield call, field, str(-(2**63)), False
    for call, field in U64_FIELDS:
        yield call, field, str(2**32), True
        yield call, field, str(2**63), True
        yield call, field, str(U64_MAX), True
    for call, field in U32_FIELDS:
        yield call, field, str(U32_MAX), True
        yield call, field, str(2**32), False  # case 13
        yield call, field, str(U64_MAX), False
    for call, field in I32_FIELDS:
        yield call, field, str(-(2**31)), True
        yield call, field, str(2**31 - 1), True
        yield call, field, str(2**31), False
        yield call, field, str(-(2**31) - 1), False


def send_field(api: Api, topic: str, call: str, field: str, text: str) -> Any:
    """One call that is right but for this one field, whose JSON text is given."""
    method, sub, members = {
        "put": ("PUT", "", {"type": '"queue"', "durability": '"memory"'}),
        "write": ("POST", "", {"records": '[{"data":1}]'}),
        "record": ("POST", "", {}),
        "claim": ("POST", "/claim", {"node": '"w"'}),
        "ack": ("POST", "/ack", {"node": '"w"', "seqs": "[]"}),
        "nack": ("POST", "/nack", {"node": '"w"', "seqs": "[]"}),
        "extend": ("POST", "/extend", {"node": '"w"', "seqs": "[]", "lease_ms": "1000"}),
        "diff": ("POST", "/diff", {}),
        "delete": ("POST", "/delete", {"before_seq": "0"}),
    }[call]
    members = dict(members)
    if call == "record":
        record = {"data": "1", field: text}
        inner = ",".join(f'"{name}":{value}' for name, value in record.items())
        members["records"] = "[{" + inner + "}]"
    elif field.endswith("[]"):
        members[field.removesuffix("[]")] = f"[{text}]"
    else:
        members[field] = text
    content = "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"
    return api.send(method, f"/v0/topics/{topic}{sub}", content.encode(), JSON)


@pytest.fixture(scope="module")
def typed_queue(shared_api: Api) -> str:
    """One queue for the whole table; nothing in it is worth keeping."""
    shared_api.make_queue("typing")
    # Something to read, so that a diff with any accepted `wait_ms` answers at once.
    shared_api.append("typing", "seen")
    return "typing"


def check(api: Api, topic: str, call: str, field: str, text: str, accepted: bool) -> None:
    """One row of a table."""
    reply = send_field(api, topic, call, field, text)
    if accepted:
        ok(reply)
    else:
        refused(reply, 400, "invalid_request")


@pytest.mark.parametrize(("call", "field", "text", "accepted"), list(integer_rows()))
def test_integers(
    api: Api, typed_queue: str, call: str, field: str, text: str, accepted: bool
) -> None:
    """Cases 12, 13, 14, 126: no fractions, no exponents, no text, no booleans, in range."""
    check(api, typed_queue, call, field, text, accepted)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("put", "durable"),
        ("put", "auto_priority"),
        ("put", "auto_create"),
        ("put", "dedupe_node"),
        ("put", "leases_durable"),
        ("diff", "include_tags"),
        ("diff", "include_meta"),
        ("write", "create"),
        ("write", "disable_backpressure"),
    ],
)
@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("true", True),
        ("false", True),
        ("0", False),
        ("1", False),
        ('"true"', False),
        ('""', False),
        ("[]", False),
        ("null", False),
    ],
)
def test_booleans(
    api: Api, typed_queue: str, call: str, field: str, text: str, accepted: bool
) -> None:
    """Case 14: true and false only; null only where it means absent."""
    accepted = accepted or (text == "null" and (call, field) in NULL_MEANS_ABSENT)
    check(api, typed_queue, call, field, text, accepted)


@pytest.mark.parametrize(
    ("field", "text", "accepted"),
    [
        ("type", '"queue"', True),
        ("type", '"Queue"', False),
        ("type", '"QUEUE"', False),
        ("type", '"queue "', False),
        ("type", '""', False),
        ("type", "null", False),
        ("type", "1", False),
        ("discard", '"old"', True),
        ("discard", '"reject"', True),
        ("discard", '"Old"', False),
        ("discard", '"new"', False),
        ("discard", "null", False),
        ("durability", '"ephemeral"', True),
        ("durability", '"memory"', True),
        ("durability", '"disk"', True),
        ("durability", '"fsync"', True),
        ("durability", "null", True),
        ("durability", '"Fsync"', False),
        ("durability", '"none"', False),
        ("durability", '""', False),
        ("durability", "true", False),
    ],
)
def test_enums(api: Api, typed_queue: str, field: str, text: str, accepted: bool) -> None:
    """Lower case, exact."""
    check(api, typed_queue, "put", field, text, accepted)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("claim", "node"),
        ("ack", "node"),
        ("nack", "node"),
        ("extend", "node"),
        ("write", "node"),
        ("write", "idempotency_key"),
        ("put", "dead_letter"),
        ("record", "tag"),
        ("record", "node"),
        ("diff", "node"),
    ],
)
@pytest.mark.parametrize("text", ["1", "true", "{}", "1.5", "null", "[1]", '[["w"]]', "[null]"])
def test_texts(api: Api, typed_queue: str, call: str, field: str, text: str) -> None:
    """Case 14: numbers are not turned into text; null only where it means absent."""
    accepted = text == "null" and (call, field) in NULL_MEANS_ABSENT
    check(api, typed_queue, call, field, text, accepted)


@pytest.mark.parametrize(
    ("call", "field", "text", "accepted"),
    [
        *[(call, "seqs", text, False) for call in ("ack", "nack", "extend")
          for text in ("null", '"1"', "1", "{}", "[[1]]", "[1,null]", '[1,"2"]')],
        *[(call, "lease_ids", text, False) for call in ("ack", "nack", "extend")
          for text in ("null", '""', "{}", "[1]", "[null]", "[[]]")],
        *[(call, "lease_ids", "[]", True) for call in ("ack", "nack", "extend")],
        ("write", "records", "null", False),
        ("write", "records", "{}", False),
        ("write", "records", '"x"', False),
        ("write", "records", "[]", False),
        ("write", "records", "[1]", False),
        ("write", "records", "[null]", False),
        ("write", "records", "[[]]", False),
        ("write", "records", "[{}]", False),
        ("write", "records", '[{"data":1},{}]', False),
        ("write", "config", "null", True),
        ("record", "meta", "null", True),
        ("record", "meta", "{}", True),
        ("record", "meta", "[1]", True),  # case 45
        ("record", "meta", '"text"', True),
        ("record", "meta", "1", True),
        ("record", "meta", "false", True),
        ("record", "data", "null", True),  # case 43
        ("record", "data", "false", True),
        ("record", "data", '""', True),
        ("diff", "node", '"w"', True),
        ("diff", "node", "[]", True),
        ("diff", "node", '["w","v"]', True),
    ],
)  # fmt: skip
def test_lists_and_any_values(
    api: Api, typed_queue: str, call: str, field: str, text: str, accepted: bool
) -> None:
    """Case 43, case 45: arrays must be arrays, data and meta may be anything."""
    check(api, typed_queue, call, field, text, accepted)


@pytest.mark.parametrize(
    ("sub", "missing"),
    [
        ("", {}),
        ("", {"records": [{"tag": "x"}]}),
        ("/claim", {}),
        ("/claim", {"max": 1}),
        ("/ack", {"node": "w"}),  # case 116
        ("/ack", {"seqs": []}),
        ("/nack", {"node": "w"}),
        ("/nack", {"seqs": []}),
        ("/extend", {"node": "w", "seqs": []}),
        ("/extend", {"node": "w", "lease_ms": 1000}),
        ("/extend", {"seqs": [], "lease_ms": 1000}),
    ],
)
def test_required_fields(api: Api, queue: str, sub: str, missing: dict[str, object]) -> None:
    """Case 116 and the like: what is required must be there."""
    refused(api.json("POST", f"/v0/topics/{queue}{sub}", missing), 400, "invalid_request")


@pytest.mark.parametrize(
    "config",
    [
        {"lease_ms": "1"},
        {"lease_ms": 1.0},
        {"type": "Queue"},
        {"durable": None},
        {"ttl_ms": -1},
        {"ttl_ms": None},
        [],
        "x",
        1,
    ],
)
def test_inline_config_is_typed_like_a_put(api: Api, topic: str, config: object) -> None:
    """The same object in a write that would create the topic; nothing is created."""
    refused(api.write(topic, [{"data": 1}], config=config), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found", {"topic": topic})


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    """Case 15: in bodies, config and records; and they are not echoed."""
    config = ok(api.put(topic, type="queue", durability="memory", no_such=[1]), 201)["config"]
    assert "no_such" not in config
    record = {"data": 1, "no_such": {"a": 1}, "$seq": 77, "$ts": 1}
    assert ok(api.write(topic, [record], no_such=True, seqs=[9], return_seqs=False))["seqs"] == [1]
    inline = {"durability": "memory", "no_such": 1}
    ok(api.write(f"{topic}b", [{"data": 1}], config=inline), 201)
    [job] = ok(api.claim(topic, seqs=[9], no_such=None))["claimed"]
    assert set(job) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    ok(api.extend(topic, [1], no_such={}))
    ok(api.nack(topic, [1], no_such={}))
    assert len(api.claimed(topic)) == 1
    assert ok(api.ack(topic, [1], lease_ms="whatever", max=None))["acked"] == 1


def test_the_largest_integers_are_kept_exactly(api: Api, topic: str) -> None:
    """No rounding through floating point anywhere."""
    wide = ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"]
    config = ok(api.put(topic, **dict.fromkeys(wide, U64_MAX)), 201)["config"]
    assert {name: config[name] for name in wide} == dict.fromkeys(wide, U64_MAX)
    exact = {"a": 2**53 + 1, "b": U64_MAX, "c": -(2**63), "d": 0.1, "e": 1e-7}
    ok(api.put(f"{topic}q", type="queue", durability="memory"), 201)
    api.append(f"{topic}q", exact)
    assert api.claimed(f"{topic}q")[0]["data"] == exact
