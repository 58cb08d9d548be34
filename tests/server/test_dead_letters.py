"""Dead letters in groups, redriven and dropped by group, at a pace; and jobs that are edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from logqueue.core.letters import LetterFilter, error_pattern, letter_meta
from logqueue.server.engine import letter_groups
from logqueue.server.service import Phase
from tests.server.memory import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    server = Memory()
    server.queue("q", dead_letter="dead")
    server.queue("r", dead_letter="dead")
    yield server
    server.close()


def answer(memory: Memory, method: str, path: str, body: object, status: int) -> dict[str, Any]:
    """The reply to a request, which has this status."""
    exchange = memory.begin(method, path, body)
    content = exchange.take()
    assert exchange.status == status, (exchange.status, content)
    found: dict[str, Any] = msgspec.json.decode(content)
    return found


def fail(memory: Memory, queue: str, *errors: str) -> None:
    """A dead letter for each error."""
    records = [{"data": {"of": error}, "tag": "t"} for error in errors]
    memory.call("POST", f"topics/{queue}", {"records": records})
    claim = {"node": "w", "max": len(errors)}
    for job, error in zip(
        memory.call("POST", f"topics/{queue}/claim", claim)["claimed"], errors, strict=True
    ):
        body: dict[str, Any] = {"node": "w", "seqs": [job["$seq"]]}
        memory.call("POST", f"topics/{queue}/reject", body | ({"error": error} if error else {}))


def groups(memory: Memory, query: str = "") -> dict[tuple[Any, Any], int]:
    """How many letters each queue and kind of error has."""
    found = memory.call("GET", f"dead_letters{query}")["groups"]
    return {(group.get("queue"), group.get("error")): group["count"] for group in found}


def operation(memory: Memory, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    """An operation, as the reply shows it."""
    found: dict[str, Any] = answer(memory, "POST", path, body, status)["operation"]
    return found


def test_letters_are_grouped_by_queue_and_kind_of_error(memory: Memory) -> None:
    fail(memory, "q", "no user 10001", "status 502", "no user 10002", "")
    fail(memory, "r", "no user 10003")
    assert groups(memory) == {
        ("q", "no user *"): 2, ("q", "status 502"): 1, ("q", ""): 1, ("r", "no user *"): 1,
    }  # fmt: skip
    whole = memory.call("GET", "dead_letters?from=q&limit=1")
    assert (whole["total"], whole["group_count"], len(whole["groups"])) == (5, 3, 1)
    assert whole["topics"] == [{"topic": "dead", "count": 5, "queues": ["q", "r"]}]
    (group,) = whole["groups"]
    example = group["example"]
    assert (example["error"], example["data"]) == ("no user 10002", {"of": "no user 10002"})
    assert (example["$seq"], example["src_seq"], example["deliveries"]) == (3, 3, 1)
    assert sum(group["per_hour"]) == group["per_hour"][-1] == 2


def test_the_trend_is_of_the_last_24_hours(memory: Memory) -> None:
    fail(memory, "q", "a", "a")
    memory.wait(3 * 3600)
    fail(memory, "q", "a")
    memory.wait(22 * 3600)
    fail(memory, "q", "a")
    (group,) = memory.call("GET", "dead_letters")["groups"]
    assert [(hour, count) for hour, count in enumerate(group["per_hour"]) if count] == [
        (2, 1), (23, 1),
    ]  # fmt: skip
    assert (group["count"], group["last_at"] - group["first_at"]) == (4, 25 * 3_600_000)


def test_what_goes_leaves_its_group(memory: Memory) -> None:
    fail(memory, "q", "a", "b", "b")
    assert groups(memory) == {("q", "b"): 2, ("q", "a"): 1}
    done = operation(memory, "topics/dead/drop", error="b", limit=1)
    assert (done["state"], done["changed"], done["matched"]) == ("done", 1, 1)
    memory.call("POST", "topics/dead/redrive", {"error": "a"})
    fail(memory, "q", "c")
    assert groups(memory) == {("q", "b"): 1, ("q", "c"): 1}


def test_a_group_is_selected_by_what_it_shows(memory: Memory) -> None:
    """Another kind of error that the pattern would match as a glob is not in it."""
    fail(memory, "q", "no user 10001", "no user 10002", "no user at all")
    fail(memory, "r", "no user 10003")
    group: dict[str, Any] = {"from": "q", "error": "no user *"}
    would = operation(memory, "topics/dead/drop", **group, dry_run=True)
    assert (would["changed"], would["dry_run"]) == (2, True)
    moved = memory.call("POST", "topics/dead/redrive", group)
    assert (moved["redriven"], moved["targets"]) == (2, ["q"])
    assert groups(memory) == {("q", "no user at all"): 1, ("r", "no user *"): 1}
    assert memory.call("POST", "topics/dead/redrive", {"error": ""})["redriven"] == 0


def test_a_redrive_has_a_pace(memory: Memory) -> None:
    fail(memory, "q", *["a"] * 30)
    started = operation(memory, "topics/dead/redrive", 202, rate_per_s=10, to="r")
    assert (started["state"], started["rate_per_s"]) == ("running", 10)
    counts = []
    for _ in range(4):
        memory.wait(1)
        counts.append(memory.call("GET", f"operations/{started['id']}")["operation"]["changed"])
    assert counts[0] <= 12 and counts[-1] == 30 and counts == sorted(counts)
    done = memory.call("GET", f"operations/{started['id']}")["operation"]
    assert (done["state"], done["targets"], done["matched"]) == ("done", ["r"], 30)


def test_a_drop_takes_dead_letters_only(memory: Memory) -> None:
    fail(memory, "q", "a")
    memory.call("POST", "topics/dead", {"records": [{"data": 1}, {"data": 2, "meta": {"a": 1}}]})
    done = operation(memory, "topics/dead/drop")
    assert (done["total"], done["scanned"], done["matched"], done["changed"]) == (3, 3, 1, 1)
    assert groups(memory) == {(None, ""): 2}
    assert operation(memory, "topics/q/drop")["changed"] == 0


def test_one_letter_comes_back_with_other_data(memory: Memory) -> None:
    fail(memory, "q", "a", "b")
    memory.call("POST", "topics/dead/redrive", {"seqs": [2], "data": {"fixed": [1, 2]}})
    (job,) = memory.call("POST", "topics/q/claim", {"node": "w", "max": 9})["claimed"]
    assert (job["data"], job["$tag"]) == ({"fixed": [1, 2]}, "t")
    for seqs in (None, [1, 2]):
        body = {"data": 1} | ({} if seqs is None else {"seqs": seqs})
        refused = answer(memory, "POST", "topics/dead/redrive", body, 400)
        assert "name it in `seqs`" in refused["error"]["message"]


@pytest.mark.parametrize("body", [{"rate_per_s": 0}, {"rate_per_s": 10**7}, {"error": 1}])
def test_a_bad_body_is_refused(memory: Memory, body: dict[str, Any]) -> None:
    for path in ("redrive", "drop"):
        answer(memory, "POST", f"topics/dead/{path}", body, 400)
        answer(memory, "POST", f"topics/dead/{path}", {}, 404)


def test_many_kinds_of_errors_are_one_group_in_the_end(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_groups, "GROUPS_MAX", 3)
    monkeypatch.setattr(letter_groups, "INDEXED_PER_STEP", 2)
    monkeypatch.setattr(letter_groups, "KEPT_PER_STEP", 1)
    fail(memory, "q", "a", "b", "c", "d", "e", "a")
    found = memory.call("GET", "dead_letters?topic=dead")["groups"]
    assert [(group.get("error"), group["count"]) for group in found] == [
        ("a", 2), (None, 2), ("b", 1), ("c", 1),
    ]  # fmt: skip
    operation(memory, "topics/dead/drop", error="a")
    assert len(groups(memory)) == 3


def test_letters_without_end_are_counted_only(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_groups, "LETTERS_INDEXED_MAX", 2)
    monkeypatch.setattr(letter_groups, "INDEXED_PER_STEP", 1)
    fail(memory, "q", *["a"] * 5)
    found = memory.call("GET", "dead_letters")
    assert (found["total"], found["ungrouped"], found["groups"][0]["count"]) == (5, 3, 2)
    operation(memory, "topics/dead/drop", limit=4)
    found = memory.call("GET", "dead_letters")
    assert (found["total"], found["groups"][0]["count"]) == (1, 1)
    assert "ungrouped" not in found


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("status 502", "status 502"),
        ("timeout after 30 s (attempt 2)", "timeout after * s (attempt *)"),
        ("ORA-00942: no table", "ORA-00942: no table"),
        ("E1234 line 81:5", "E1234 line *:*"),
        ("code 999", "code *"),
        ("no user 81234", "no user *"),
        ("order-1234567 missing", "order-* missing"),
        ("id 550e8400-e29b-41d4-a716-446655440000 gone", "id * gone"),
        ("KeyError: 'user_99120'", "KeyError: '*'"),
        ("at 0x7f", "at *"),
        ("deadbeef cafe", "deadbeef cafe"),
        ("x" * 400, "x" * 300),
        ("* and **", "* and **"),
        ("", ""),
    ],
)
def test_the_pattern_of_an_error(error: str, pattern: str) -> None:
    assert error_pattern(error) == pattern
    meta = b'{"$dead_letter_from":"q","$dead_letter_error":"%b"}' % error.encode()
    assert LetterFilter(error=pattern).matches(meta)
    assert LetterFilter(error=error).matches(meta)


@pytest.mark.parametrize(
    "meta",
    [b"", b"[]", b'"$dead_letter_from"', b'{"a":"\\"$dead_letter_from\\""}',
     b'{"$dead_letter_from":7}', b'{"$dead_letter_from":null}'],
)  # fmt: skip
def test_other_metas_are_no_letters(meta: bytes) -> None:
    assert letter_meta(meta).origin is None
    assert not LetterFilter(letters_only=True).matches(meta)


def test_a_waiting_job_gets_other_data(memory: Memory) -> None:
    records = [{"data": 1, "key": "k", "tag": "t", "delay_ms": 60_000}, {"data": 2}]
    memory.call("POST", "topics/q", {"records": records})
    path = "topics/q/jobs/1"
    kept = memory.call("PATCH", path, {"data": {"a": [1, 2]}, "tag": None})
    assert (kept["was"], kept["state"]) == ("delayed", "delayed")
    job = memory.call("GET", path)["job"]
    assert (job["data"], job["$key"], job.get("$tag")) == ({"a": [1, 2]}, "k", None)
    assert memory.call("PATCH", path, {"retry": True})["state"] == "ready"
    claimed = memory.call("POST", "topics/q/claim", {"node": "w", "max": 9})["claimed"]
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in claimed] == [
        (1, {"a": [1, 2]}, 1), (2, 2, 1),
    ]  # fmt: skip
    refused = answer(memory, "PATCH", path, {"data": 3}, 409)["error"]
    assert (refused["code"], refused["detail"]["seq"]) == ("job_in_flight", 1)
    steps = [step["event"] for step in memory.call("GET", path)["timeline"]]
    assert steps == ["appended", "replaced", "replaced", "claimed"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"retry": False}, 400), ({"tag": "x" * 300}, 400), ({"tag": 1}, 400),
     ({"meta": {str(n): n for n in range(70)}}, 400), ({"data": "x" * (1 << 20)}, 413),
     ({"data": None}, 200), ({"meta": None}, 200), ({"meta": "text"}, 200)],
)  # fmt: skip
def test_what_an_edit_may_say(memory: Memory, body: dict[str, Any], status: int) -> None:
    memory.call("POST", "topics/q", {"records": [{"data": 1}]})
    answer(memory, "PATCH", "topics/q/jobs/1", body, status)
    answer(memory, "PATCH", "topics/q/jobs/2", {"data": 1}, 404)
    answer(memory, "PATCH", "topics/none/jobs/1", {"data": 1}, 404)


def test_what_the_server_is_belongs_to_the_reason(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby hands out no jobs; after a failed write they are claimed and not acked."""
    memory.call("POST", "topics/q", {"records": [{"data": 1}, {"data": 2, "delay_ms": 5000}]})

    def why(seq: int) -> dict[str, Any]:
        found: dict[str, Any] = memory.call("GET", f"topics/q/jobs/{seq}?timeline=false")["why"]
        return found

    assert (why(1)["code"], why(2)["code"]) == ("ready_no_worker", "delayed")
    log = memory.dispatcher.engine.journal.jobs
    monkeypatch.setattr(type(log), "failure", OSError("gone"))
    assert why(1)["text"].endswith(
        "A write has failed: acks are refused until the server restarts."
    )
    monkeypatch.undo()
    lifecycle = memory.core._runtime.service.lifecycle
    monkeypatch.setattr(lifecycle, "phase", Phase.STANDBY)
    assert (why(1)["code"], why(2)["code"]) == ("standby", "delayed")
