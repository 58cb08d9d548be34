"""Every method: the exact request it makes, and what it makes of the reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest

from logqueue.api.operations import BY_NAME
from logqueue.api.operations.schedules import ENTRY, NIGHTLY
from logqueue.client import (
    Client,
    EpochPart,
    FollowUp,
    NewRecord,
    NextStep,
    Settled,
    UnexpectedReply,
)
from logqueue.client.failures import GatewayFailed, refusal
from logqueue.shapes import Drift, Job, QueueCounters, Record, Tombstone
from tests.client.either import Opened

COST = {"server_total_ms": 0.1}
CONFIG = {
    "type": "queue", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old",
    "durable": False, "durability": "disk", "priority": None, "auto_priority": True,
    "auto_create": True, "idempotency_window_ms": 120_000, "dedupe_node": True,
    "lease_ms": 30_000, "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": None,
    "leases_durable": False,
}  # fmt: skip
STATE = {
    "topic": "q", "type": "queue", "head_seq": 5, "earliest_seq": 1, "next_seq": 6, "count": 5,
    "bytes": 99, "config": CONFIG, "effective_priority": 0, "last_write_ts": 7,
    "last_read_ts": None, "queue": {"ready": 4, "in_flight": 1, "dead_lettered": 0},
}  # fmt: skip
PAGE = {
    "topic": "q", "records": [], "next_from_seq": 9, "head_seq": 9, "earliest_seq": 1,
    "caught_up": True, "tombstone": None, "lag": 0, "performance": COST,
}  # fmt: skip
ROUTER = {
    "router": "a->b", "source": "a", "dest": "b", "preserve_node": True, "preserve_tag": True,
    "filter": ["tag", "Glob", "x*"], "allow_cycle": False, "guarantee": "at_least_once",
}  # fmt: skip
JOB = {"$seq": 7, "lease_id": "lease_a", "deadline": 9, "$ts": 1, "deliveries": 2, "data": {"a": 1}}
LEASED = Job(seq=7, lease_id="lease_a", deadline=9, ts=1, deliveries=2, data={"a": 1})
VIEW = {"$seq": 7, "$ts": 1, "state": "ready", "deliveries": 0, "age_ms": 3, "$key": "k"}
BATCH = {
    "batch": "b",
    "state": "open",
    "joined": 3,
    "done": 1,
    "failed": 0,
    "left": 2,
    "created_at": 1,
    "closed_at": None,
    "ended_at": None,
    "last_error": None,
    "on_done": None,
    "on_problem": None,
}
SETTLED = {"topic": "q", "skipped": [], "ready": 3, "in_flight": 0, "performance": COST}


@dataclass
class Case:
    """A call, what it must send, what comes back, what must come of it."""

    method: str
    path: str
    call: Callable[[Client], Any]
    reply: Any
    sends: Any = None
    check: Callable[[Any], bool] = field(default=lambda result: True)
    status: int = 200


def is_now(**expected: Any) -> Callable[[Any], bool]:
    """The result has these attributes."""
    return lambda result: all(getattr(result, name) == value for name, value in expected.items())


OPERATION = {
    "id": "op_1", "action": "retry", "topic": "q", "state": "done", "dry_run": False, "total": 3,
    "scanned": 3, "matched": 2, "changed": 2, "skipped": 0, "started_at": 5, "finished_at": 6,
}  # fmt: skip

TOPIC_CASES = [
    Case(
        "PUT", "/v0/topics/q",
        lambda c: c.put_topic("q", type="queue", dead_letter=None, lease_ms=5),
        {"topic": "q", "created": True, "config": CONFIG, "performance": COST},
        {"type": "queue", "dead_letter": None, "lease_ms": 5},
        lambda r: r.created and r.config.lease_ms == 30_000 and r.config.archive is None,
        201,
    ),
    Case(
        "PATCH", "/v0/topics/q", lambda c: c.patch_topic("q", max_in_flight=3, archive=None),
        {"topic": "q", "config": {**CONFIG, "paused": True, "retry_backoff": {"kind": "linear"}}},
        {"max_in_flight": 3, "archive": None},
        lambda r: r.config.paused and r.config.retry_backoff.base_ms == 1000,
    ),
    Case(
        "POST", "/v0/topics/q/ensure", lambda c: c.ensure_topic("q", type="queue", lease_ms=5),
        {
            "topic": "q", "created": False, "config": CONFIG,
            "differs": {"lease_ms": {"have": 30_000, "want": 5}},
        },
        {"type": "queue", "lease_ms": 5},
        lambda r: r.differs == {"lease_ms": Drift(have=30_000, want=5)} and not r.created,
    ),
    Case(
        "GET", "/v0/topics/q", lambda c: c.topic("q"), STATE,
        check=lambda r: r.queue == QueueCounters(ready=4, in_flight=1, dead_lettered=0),
    ),
    Case(
        "GET", "/v0/topics/q/stats", lambda c: c.stats("q"), STATE,
        check=lambda r: r.head_seq == STATE["head_seq"] and r.queue.in_flight == 1,
    ),
    Case("GET", "/v0/topics/q?touch=false", lambda c: c.topic("q", touch=False), STATE),
    Case(
        "GET", "/v0/topics?prefix=a%26b&cursor=x&page_size=2",
        lambda c: c.topic_page(prefix="a&b", cursor="x", page_size=2),
        {"topics": [], "next_cursor": "y", "performance": COST}, check=is_now(next_cursor="y"),
    ),
    Case(
        "GET", "/v0/topics?page_size=1000", lambda c: [*c.topics()],
        {"topics": [{"topic": "t", "head_seq": 1, "earliest_seq": 1, "count": 1, "bytes": 2,
                     "durable": False, "effective_priority": 0}]},
        check=lambda r: [entry.topic for entry in r] == ["t"],
    ),
    Case(
        "DELETE", "/v0/topics/q?if_empty=true", lambda c: c.drop_topic("q", if_empty=True),
        {"topic": "q", "deleted": True, "routers_removed": ["r"]},
        check=is_now(deleted=True, routers_removed=["r"]),
    ),
    Case(
        "POST", "/v0/topics/q/delete",
        lambda c: c.delete_records("q", before_seq=5, match=["tag", "Eq", "a"]),
        {"topic": "q", "deleted": 2, "earliest_seq": 5, "head_seq": 9, "count": 4, "bytes": 8},
        {"before_seq": 5, "match": ["tag", "Eq", "a"]}, is_now(deleted=2, earliest_seq=5),
    ),
    Case(
        "POST", "/v0/topics/q/diff",
        lambda c: c.diff("q", 8, limit=5, node=["a"], include_meta=False, wait_ms=50),
        {**PAGE, "records": [{"$seq": 9, "$ts": 1, "$tag": "t", "data": None, "new": 1}]},
        {"from_seq": 8, "limit": 5, "node": ["a"], "include_tags": True, "include_meta": False,
         "wait_ms": 50},
        is_now(records=[Record(seq=9, ts=1, tag="t", data=None)], lag=0),
    ),
    Case(
        "POST", "/v0/topics/q/diff", lambda c: [*c.read("q", 3)],
        {**PAGE, "tombstone": {"gap_from": 4, "gap_to": 6, "reason": "cap", "missed_estimate": 3,
                               "earliest_seq": 7, "head_seq": 9},
         "records": [{"$seq": 7, "$ts": 1, "data": 1}]},
        {"from_seq": 3, "limit": 1000, "include_tags": True, "include_meta": True},
        lambda r: r == [Tombstone(gap_from=4, gap_to=6, reason="cap", earliest_seq=7, head_seq=9,
                                  missed_estimate=3), Record(seq=7, ts=1, data=1)],
    ),
    Case(
        "POST", "/v0/topics/q",
        lambda c: c.append("q", [1, NewRecord({"a": 2}, tag="t", delay_ms=5, key="k")], key="once",
                           node="n", create=True, config={"type": "queue"}),
        {"topic": "q", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2,
         "created": True, "deduped": False, "created_count": 1,
         "results": [{"seq": 1, "result": "created"}, {"seq": 2, "result": "kept"}]},
        {"records": [{"data": 1}, {"data": {"a": 2}, "tag": "t", "delay_ms": 5, "key": "k"}],
         "idempotency_key": "once", "node": "n", "create": True, "config": {"type": "queue"}},
        lambda r: r.seqs == [1, 2] and r.results[1].result == "kept" and r.created_count == 1,
        201,
    ),
    Case(
        "POST", "/v0/topics/q?return_seqs=false",
        lambda c: c.append("q", [Record(seq=1, ts=2, data=3, node="n", tag="t", meta={"m": 1})],
                           key="k", return_seqs=False),
        {"topic": "q", "first_seq": 1, "last_seq": 1, "head_seq": 1, "count": 1, "created": False,
         "deduped": True},
        {"records": [{"data": 3, "tag": "t", "node": "n", "meta": {"m": 1}}],
         "idempotency_key": "k", "create": False},
        is_now(seqs=None, deduped=True),
    ),
]  # fmt: skip

QUEUE_CASES = [
    Case(
        "POST", "/v0/topics/q/claim",
        lambda c: c.claim("q", node="w", max=5, lease_ms=100, wait_ms=200),
        {"topic": "q", "count": 1, "ready": 0, "claimed": [
            {**JOB, "$tag": "t", "meta": 1, "$key": "k", "last_error": "e", "$updated_at": 4}]},
        {"node": "w", "max": 5, "lease_ms": 100, "wait_ms": 200},
        lambda r: r.jobs == [Job(seq=7, lease_id="lease_a", deadline=9, ts=1, deliveries=2,
                                 data={"a": 1}, tag="t", meta=1, key="k", last_error="e",
                                 updated_at=4)],
    ),
    Case(
        "POST", "/v0/topics/q/claim", lambda c: c.claim("q"),
        {"topic": "q", "count": 0, "ready": 0, "claimed": [], "reason": "delayed",
         "retry_after_ms": 70},
        {"node": "own", "max": 1}, is_now(jobs=[], reason="delayed", retry_after_ms=70),
    ),
    Case(
        "POST", "/v0/topics/q/ack", lambda c: c.ack("q", LEASED), {**SETTLED, "acked": 1},
        {"node": "own", "seqs": [7], "lease_ids": ["lease_a"]},
        lambda r: r == Settled("q", [7], [], [], 3, 0),
    ),
    Case(
        "POST", "/v0/topics/q/ack", lambda c: c.ack("q", [LEASED, 8, 8, 9], node="w"),
        {**SETTLED, "acked": 2, "skipped": [8, 9]},
        {"node": "w", "seqs": [7, 8, 8, 9], "lease_ids": ["lease_a", "", "", ""]},
        lambda r: r == Settled("q", [7, 8], [8, 9], [], 3, 0),
    ),
    Case(
        "POST", "/v0/topics/q/ack",
        lambda c: c.ack(
            "q", LEASED, append=[FollowUp("a", [1]), FollowUp("b", [2], create=True),
                                 FollowUp("a", [NewRecord(3, tag="t")])], idempotency_key="k",
        ),
        {**SETTLED, "acked": 1, "appended": [
            {"topic": "a", "first_seq": 1, "last_seq": 2, "head_seq": 2, "count": 2,
             "created": False, "deduped": False, "seqs": [1, 2]},
        ]},
        {"node": "own", "seqs": [7], "lease_ids": ["lease_a"], "append": [
            {"topic": "a", "records": [{"data": 1}, {"data": 3, "tag": "t"}],
             "idempotency_key": "k", "create": False},
            {"topic": "b", "records": [{"data": 2}], "idempotency_key": "k", "create": True},
        ]},
        lambda r: r.counted == [7] and r.appended[0].seqs == [1, 2],
    ),
    Case(
        "POST", "/v0/topics/q/ack",
        lambda c: c.ack("q", [LEASED, 8], append=[FollowUp("a", [1])], idempotency_key="k"),
        {**SETTLED, "acked": 0, "skipped": [8], "appended": []},
        {"node": "own", "seqs": [7, 8], "lease_ids": ["lease_a", ""], "append": [
            {"topic": "a", "records": [{"data": 1}], "idempotency_key": "k", "create": False},
        ]},
        lambda r: r == Settled("q", [], [8], [], 3, 0, []),
    ),
    Case(
        "POST", "/v0/topics/q/nack",
        lambda c: c.nack("q", 7, delay_ms=0, error="bad", count=False), {**SETTLED, "nacked": 1},
        {"node": "own", "seqs": [7], "delay_ms": 0, "error": "bad", "count": False},
        is_now(counted=[7]),
    ),
    Case(
        "POST", "/v0/topics/q/nack", lambda c: c.nack("q", [LEASED]), {**SETTLED, "nacked": 1},
        {"node": "own", "seqs": [7], "lease_ids": ["lease_a"]}, is_now(counted=[7]),
    ),
    Case(
        "POST", "/v0/topics/q/reject", lambda c: c.reject("q", [LEASED], error="no"),
        {**SETTLED, "rejected": 0, "skipped": [7]},
        {"node": "own", "error": "no", "seqs": [7], "lease_ids": ["lease_a"]},
        is_now(counted=[], skipped=[7]),
    ),
    Case(
        "POST", "/v0/topics/q/extend", lambda c: c.extend("q", [LEASED, 9], 5000),
        {"topic": "q", "extended": 1, "skipped": [9], "deadlines": {"7": 123}},
        {"node": "own", "lease_ms": 5000, "seqs": [7, 9], "lease_ids": ["lease_a", ""]},
        is_now(extended=1, skipped=[9], deadlines={7: 123}),
    ),
    Case(
        "GET", "/v0/topics/q/jobs?state=ready&tag=t&key=k&after=3&limit=9&data=false",
        lambda c: c.job_page("q", state="ready", tag="t", key="k", after=3, limit=9, data=False),
        {"topic": "q", "jobs": [VIEW], "scanned": 4, "next_after": 7},
        check=lambda r: r.jobs[0].key == "k" and r.jobs[0].age_ms == 3 and r.next_after == 7,
    ),
    Case(
        "GET",
        "/v0/topics/q/jobs?node=w&min_age_ms=1&max_age_ms=9&min_deliveries=2&text=a+b&limit=100",
        lambda c: [
            *c.jobs("q", node="w", min_age_ms=1, max_age_ms=9, min_deliveries=2, text="a b")
        ],
        {"topic": "q", "jobs": [VIEW], "scanned": 1}, check=lambda r: [job.seq for job in r] == [7],
    ),
    Case(
        "GET", "/v0/topics/q/jobs?state=ready%2Cheld&limit=100",
        lambda c: [*c.jobs("q", state=["ready", "held"])],
        {"topic": "q", "jobs": [VIEW], "scanned": 1}, check=lambda r: [job.seq for job in r] == [7],
    ),
    Case(
        "GET", "/v0/topics/q/jobs/7?ended=true", lambda c: c.job("q", 7, ended=True),
        {"topic": "q", "job": {**VIEW, "data": [1]}, "history_complete": True,
         "history": [{"at": 1, "event": "claimed", "node": "w", "lease_id": "lease_1", "more": 2}]},
        check=lambda r: r.job.data == [1] and r.history[0].lease_id == "lease_1",
    ),
    Case(
        "GET", "/v0/topics/q/jobs/7?wait_ms=500", lambda c: c.job("q", 7, wait_ms=500),
        {"topic": "q", "job": {"$seq": 7, "state": "done", "result": [1]}},
        check=lambda r: r.job.result == [1],
    ),
    Case(
        "POST", "/v0/topics/q/jobs/status",
        lambda c: c.job_statuses("q", [7, 8], wait_ms=500, until="any"),
        {"topic": "q", "jobs": [VIEW, {"$seq": 8, "state": "dead", "error": "no"}], "rest": [9]},
        sends={"seqs": [7, 8], "wait_ms": 500, "until": "any"},
        check=lambda r: [job.has_ended for job in r.jobs] == [False, True] and r.rest == [9],
    ),
    Case(
        "POST", "/v0/topics/q/jobs/change",
        lambda c: c.change_jobs(
            "q", "delay", state=["ready"], tag="t", key="k", node="w", min_age_ms=1, max_age_ms=9,
            min_deliveries=2, text="a", seqs=[3], before_seq=5, operation="op_1", delay_ms=7,
            force=True, limit=8, rate_per_s=9, dry_run=True, wait=True,
        ),
        {"operation": OPERATION},
        {"action": "delay", "delay_ms": 7, "force": True, "limit": 8, "rate_per_s": 9,
         "dry_run": True, "wait": True,
         "filter": {"state": ["ready"], "tag": "t", "key": "k", "node": "w", "min_age_ms": 1,
                    "max_age_ms": 9, "min_deliveries": 2, "text": "a", "seqs": [3],
                    "before_seq": 5, "operation": "op_1"}},
        lambda r: r.operation.changed == 2,
    ),
    Case(
        "GET", "/v0/topics/q/groups?order=age&limit=3",
        lambda c: c.groups("q", order="age", limit=3),
        BY_NAME["list_groups"].example, check=lambda r: r.groups[0].group == "acme",
    ),
    Case(
        "GET", "/v0/topics/q/workers", lambda c: c.workers("q"),
        {"topic": "q", "workers": [{"node": "w", "in_flight": 1, "last_seen_ts": None, "streams": 0,
                                    "waiting": 1, "claimed": 3, "acked": 4, "nacked": 5,
                                    "rejected": 7, "expired": 6}], "count": 1},
        check=lambda r: r[0].node == "w" and r[0].expired == 6,
    ),
    Case(
        "DELETE", "/v0/topics/q/jobs/7?force=true", lambda c: c.cancel("q", 7, force=True),
        {"topic": "q", "cancelled": True, "$seq": 7, "state": "held"},
        check=is_now(cancelled=True, seq=7, state="held"),
    ),
    Case(
        "DELETE", "/v0/topics/q/keys/a%2Fb%20%C3%A4", lambda c: c.cancel_key("q", "a/b ä"),
        {"topic": "q", "cancelled": False}, check=is_now(cancelled=False),
    ),
    Case(
        "POST", "/v0/topics/q/purge", lambda c: c.purge("q", ["ready", "held"]),
        {"topic": "q", "purged": {"ready": 2, "held": 0}}, {"states": ["ready", "held"]},
        is_now(purged={"ready": 2, "held": 0}),
    ),
    Case(
        "PATCH", "/v0/topics/q/jobs/7",
        lambda c: c.edit_job("q", 7, data=None, tag="t", retry=True),
        {"topic": "q", "$seq": 7, "was": "held", "state": "ready"},
        {"retry": True, "data": None, "tag": "t"}, is_now(seq=7, was="held", state="ready"),
    ),
    Case(
        "GET", "/v0/dead_letters?topic=d&limit=3&from=q",
        lambda c: c.dead_letters("d", origin="q", limit=3),
        {"total": 2, "topics": [], "group_count": 1, "groups": [
            {"topic": "d", "queue": "q", "error": "no *", "count": 2, "first_at": 1, "last_at": 2,
             "per_hour": [0] * 24, "example": {"$seq": 4, "$ts": 2, "data": [1]}}]},
        check=lambda r: r.groups[0].error == "no *" and r.groups[0].example.data == [1],
    ),
    Case(
        "POST", "/v0/topics/d/redrive",
        lambda c: c.redrive_in_background("d", to="r", origin="q", error="no *", rate_per_s=5),
        {"operation": {**OPERATION, "targets": ["r"]}},
        {"error": "no *", "rate_per_s": 5, "from": "q", "to": "r", "wait": False},
        lambda r: r.operation.targets == ["r"],
    ),
    Case(
        "POST", "/v0/topics/d/drop",
        lambda c: c.drop_dead_letters("d", seqs=[1, 2], reason="expired", dry_run=True),
        {"operation": OPERATION},
        {"seqs": [1, 2], "reason": "expired", "dry_run": True, "wait": True},
        lambda r: r.operation.id == "op_1",
    ),
    Case(
        "POST", "/v0/topics/q/release", lambda c: c.release("q", [1, 2]),
        {"topic": "q", "released": 1, "skipped": [2], "ready": 1, "held": 0}, {"seqs": [1, 2]},
        is_now(released=1, skipped=[2]),
    ),
    Case(
        "POST", "/v0/topics/q.dead/redrive",
        lambda c: c.redrive("q.dead", to="q", seqs=[1], match="t*", before_seq=9,
                            reason="rejected", limit=5, dry_run=True),
        {"topic": "q.dead", "redriven": 1, "skipped": 0, "remaining": 3, "targets": ["q"],
         "dry_run": True},
        {"to": "q", "seqs": [1], "match": "t*", "before_seq": 9, "reason": "rejected", "limit": 5,
         "dry_run": True},
        is_now(redriven=1, skipped=0, remaining=3, targets=["q"]),
    ),
    Case("POST", "/v0/topics/q.dead/redrive", lambda c: c.redrive("q.dead"),
         {"topic": "q.dead", "redriven": 0, "skipped": 0, "remaining": 0, "targets": [],
          "dry_run": False}, {}),
    Case("POST", "/v0/topics/q/pause", lambda c: c.pause("q"),
         {"topic": "q", "paused": True}, {}, is_now(paused=True)),
    Case("POST", "/v0/topics/q/resume", lambda c: c.resume("q"),
         {"topic": "q", "paused": False}, {}, is_now(paused=False)),
]  # fmt: skip

SERVER_CASES = [
    Case(
        "PUT", "/v0/routers/a-%3Eb", lambda c: c.put_router("a->b", "a", "b", filter="x*"),
        {**ROUTER, "created": True},
        {"source": "a", "dest": "b", "filter": "x*", "preserve_node": True, "preserve_tag": True,
         "create_dest": True, "allow_cycle": False, "guarantee": "at_least_once"},
        is_now(created=True, filter=["tag", "Glob", "x*"]), 201,
    ),
    Case("GET", "/v0/routers/r", lambda c: c.router("r"), {**ROUTER, "forwarded_total": 4},
         check=is_now(forwarded_total=4)),
    Case(
        "GET", "/v0/routers?prefix=a&source=s&dest=d&cursor=x&page_size=2",
        lambda c: c.router_page(prefix="a", source="s", dest="d", cursor="x", page_size=2),
        {"routers": [], "next_cursor": "y"}, check=is_now(next_cursor="y"),
    ),
    Case(
        "GET", "/v0/routers?source=s&page_size=1000", lambda c: [*c.routers(source="s")],
        {"routers": [{"router": "r", "source": "s", "dest": "d", "guarantee": "exactly_once",
                      "forwarded_total": 0}]},
        check=lambda r: r[0].guarantee == "exactly_once",
    ),
    Case("DELETE", "/v0/routers/r", lambda c: c.drop_router("r"),
         {"router": "r", "deleted": False}, check=is_now(deleted=False)),
    Case("GET", "/v0/health", lambda c: c.health(),
         {"status": "ok", "version": "9", "uptime_ms": 5}, check=is_now(version="9")),
    Case("GET", "/v0/ready", lambda c: c.ready(),
         {"status": "ready", "wal_replay_complete": True, "topics": 2}, check=is_now(topics=2)),
    Case("GET", "/v0/replica", lambda c: c.replica(), {"role": "none"}, check=is_now(role="none")),
    Case("POST", "/v0/replica/promote", lambda c: c.promote(force=True),
         {"role": "writer", "epoch": 4}, {"force": True}, check=is_now(epoch=4)),
    Case("GET", "/v0/metrics", lambda c: c.metrics(), {"topics": 1},
         check=lambda r: r == {"topics": 1}),
    Case("GET", "/v0/metrics", lambda c: c.metrics_text(), {"any": "text"},
         check=lambda r: r == '{"any":"text"}'),
    Case("GET", "/v0/operations", lambda c: c.operations(), {"operations": [OPERATION]},
         check=lambda r: r[0].changed == 2),
    Case("GET", "/v0/operations/op_1", lambda c: c.operation("op_1"), {"operation": OPERATION},
         check=lambda r: r.operation.state == "done"),
    Case("DELETE", "/v0/operations/op_1", lambda c: c.stop_operation("op_1"),
         {"operation": OPERATION}, check=lambda r: r.operation.id == "op_1"),
    Case("GET", "/v0/server", lambda c: c.server(), BY_NAME["server"].example,
         check=lambda r: r.health.findings[0].code == "disk_low"),
    Case("PUT", "/v0/server/log_level", lambda c: c.set_log_level("debug", for_ms=5),
         {"level": "debug", "configured": "info", "until": 9}, {"level": "debug", "for_ms": 5},
         is_now(level="debug", until=9)),
    Case("GET", "/v0/topics/q/history?window=24h", lambda c: c.topic_history("q", window="24h"),
         BY_NAME["topic_history"].example, check=is_now(step_ms=1000)),
    Case("GET", "/v0/workers?node=n&topic=q&prefix=a&jobs=3",
         lambda c: c.all_workers(node="n", topic="q", prefix="a", jobs=3),
         BY_NAME["list_all_workers"].example, check=lambda r: r.workers[0].jobs[0].seq == 1),
]  # fmt: skip

PRODUCER_CASES = [
    Case(
        "POST", "/v0/producers/p/epochs/4/stage",
        lambda c: c.stage("p", 4, "t", [NewRecord(2, tag="x")], partition=3, attempt="a", chunk=1),
        {"producer": "p", "epoch": 4, "status": "staged", "staged_bytes": 9, "performance": COST},
        {"topic": "t", "partition": 3, "attempt": "a", "chunk": 1,
         "records": [{"data": 2, "tag": "x"}]},
        is_now(status="staged", staged_bytes=9),
    ),
    Case(
        "POST", "/v0/producers/p/epochs/4/commit",
        lambda c: c.commit(
            "p", 4, [EpochPart(chunks=2, rows=5, partition=3, attempt="a")], content="x1"
        ),
        {"producer": "p", "epoch": 4, "status": "committed",
         "topics": [{"topic": "t", "first_seq": 1, "last_seq": 5, "count": 5}]},
        {"parts": [{"chunks": 2, "rows": 5, "partition": 3, "attempt": "a"}], "content": "x1"},
        lambda r: r.topics[0].last_seq == 5,
    ),
    Case(
        "POST", "/v0/producers/p/epochs/4/abort", lambda c: c.abort("p", 4),
        {"producer": "p", "epoch": 4, "status": "aborted", "staged_bytes": 3},
        check=lambda r: (r.status, r.staged_bytes) == ("aborted", 3),
    ),
    Case("GET", "/v0/producers/p", lambda c: c.producer("p"),
         {"producer": "p", "last_epoch": 4, "staged": {"epochs": [5], "bytes": 7}},
         check=lambda r: (r.last_epoch, r.staged.epochs) == (4, [5])),
]  # fmt: skip

SEGMENT = {
    "id": "jobs-7", "sealed": True, "archived": False, "version": 1, "log": "jobs", "log_id": "ab",
    "identity": "ab", "segment": 7, "first_frame": 1, "last_frame": 2, "bytes": 5000, "crc32": 9,
    "first_order": 3, "last_order": 4, "first_at": 5, "last_at": 6,
    "topics": [{"topic": 1, "name": "t", "log_id": "ab-1", "ranges": [[1, 3], [5, 5]], "rows": 4}],
    "borrowed": [{"topic": 1, "first": 1, "count": 2, "chunk": ["p", 4, 3, "a", 1]}],
}  # fmt: skip

LOG_CASES = [
    Case(
        "GET", "/v0/log/segments?log=leases&topic=a%2Cb&since=7&cursor=x&page_size=2",
        lambda c: c.segment_page(
            "leases", topics=["a", "b"], since=7, cursor="x", page_size=2
        ),
        {"log": "leases", "log_id": "ab", "order": 8, "segments": [SEGMENT], "next_cursor": "y"},
        check=lambda r: (r.order, r.segments[0].topics[0].ranges) == (8, [(1, 3), (5, 5)]),
    ),
    Case(
        "GET", "/v0/log/segments?log=jobs&page_size=1000", lambda c: [*c.segments()],
        {"log": "jobs", "log_id": "ab", "order": 8, "segments": [SEGMENT]},
        check=lambda r: r[0].borrowed[0].chunk == ("p", 4, 3, "a", 1),
    ),
    Case("GET", "/v0/log/segments/jobs-7", lambda c: c.segment("jobs-7"), {"any": "bytes"},
         check=lambda r: r == b'{"any":"bytes"}'),
    Case(
        "GET", "/v0/topics/t/seq_at?ts=5", lambda c: c.seq_at("t", 5),
        {"topic": "t", "log_id": "ab-1", "ts": 5, "seq": 4, "previous_seq": 2, "earliest_seq": 2,
         "head_seq": 9},
        check=is_now(seq=4, previous_seq=2),
    ),
]  # fmt: skip


SCHEDULE_CASES = [
    Case(
        "POST", "/v0/batches",
        lambda c: c.open_batch("b", on_done=NextStep("t", NewRecord(1, tag="x"))),
        {**BATCH, "created": True},
        {"name": "b", "on_done": {"topic": "t", "record": {"data": 1, "tag": "x"}}},
        is_now(batch="b", created=True, left=2),
    ),
    Case("POST", "/v0/batches/b/close", lambda c: c.close_batch("b"), BATCH),
    Case("GET", "/v0/batches/b", lambda c: c.batch("b"), BATCH, check=is_now(done=1)),
    Case("GET", "/v0/batches/b?wait_ms=5", lambda c: c.batch("b", wait_ms=5), BATCH),
    Case(
        "GET", "/v0/batches?prefix=a&page_size=9",
        lambda c: c.batch_page(prefix="a", page_size=9), {"batches": [BATCH]},
    ),
    Case(
        "GET", "/v0/batches?page_size=1000", lambda c: [*c.batches()], {"batches": [BATCH]},
        check=lambda found: found[0].batch == "b",
    ),
    Case("DELETE", "/v0/batches/b", lambda c: c.drop_batch("b"), {"batch": "b", "deleted": True}),
    Case(
        "PUT", "/v0/schedules/s?if_absent=true&next=2",
        lambda c: c.put_schedule(
            "s", "q", NewRecord(1, key="k"), cron="0 3 * * *", timezone="Europe/Berlin",
            jitter_ms=5, catch_up="all", paused=True, if_absent=True, next=2,
        ),
        {**NIGHTLY, "created": False, "differs": {"cron": {"have": 1, "want": 2}}},
        {"topic": "q", "record": {"data": 1, "key": "k"}, "cron": "0 3 * * *",
         "timezone": "Europe/Berlin", "jitter_ms": 5, "catch_up": "all", "paused": True},
        lambda r: r.differs["cron"].have == 1,
    ),
    Case("PUT", "/v0/schedules/s", lambda c: c.put_schedule("s", "q", 1, every_ms=1000),
         {**NIGHTLY, "created": True}, {"topic": "q", "record": {"data": 1}, "every_ms": 1000},
         is_now(created=True), 201),
    Case("GET", "/v0/schedules/s?next=0", lambda c: c.schedule("s", next=0), NIGHTLY,
         check=is_now(last_result="created")),
    Case("GET", "/v0/schedules?prefix=a&topic=q&cursor=x&page_size=2",
         lambda c: c.schedule_page(prefix="a", topic="q", cursor="x", page_size=2),
         {"schedules": [], "next_cursor": "y"}, check=is_now(next_cursor="y")),
    Case("GET", "/v0/schedules?topic=q&page_size=1000", lambda c: [*c.schedules(topic="q")],
         {"schedules": [ENTRY]}, check=lambda r: r[0].fired == 1),
    Case("POST", "/v0/schedules/s/pause", lambda c: c.pause_schedule("s"), NIGHTLY,
         check=is_now(fired=1)),
    Case("POST", "/v0/schedules/s/resume", lambda c: c.resume_schedule("s"), NIGHTLY,
         check=is_now(fired=1)),
    Case("POST", "/v0/schedules/s/run", lambda c: c.run_schedule("s"),
         BY_NAME["run_schedule"].example, check=is_now(seq=8)),
    Case("DELETE", "/v0/schedules/s", lambda c: c.drop_schedule("s"),
         {"schedule": "s", "deleted": False}, check=is_now(deleted=False)),
    Case("GET", "/v0/firings?cron=0+3+%2A+%2A+%2A&timezone=UTC&after=5&next=1",
         lambda c: c.firings("0 3 * * *", timezone="UTC", after=5, next=1),
         {"cron": "0 3 * * *", "timezone": "UTC", "next": [7]}, check=is_now(next=[7])),
]  # fmt: skip

CASES = TOPIC_CASES + QUEUE_CASES + SERVER_CASES + PRODUCER_CASES + LOG_CASES + SCHEDULE_CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.path}")
def test_a_method_makes_one_request_and_reads_its_reply(opened: Opened, case: Case) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(case.status, content=msgspec.json.encode(case.reply))

    client = opened(
        "http://queue.test", "secret", node="own", transport=httpx.MockTransport(answer)
    )
    result = case.call(client)
    (request,) = sent
    assert (request.method, request.url.raw_path.decode()) == (case.method, case.path)
    assert request.headers["authorization"] == "Bearer secret"
    if case.sends is None:
        assert request.content == b"" and "content-type" not in request.headers
    else:
        assert request.headers["content-type"] == "application/json"
        assert json.loads(request.content) == case.sends
    assert case.check(result), result


def test_every_method_is_here() -> None:
    told = {name for name in vars(Client) if not name.startswith("_")}
    called = {name for case in CASES for name in case.call.__code__.co_names}
    streams = {"watch", "work", "stats_stream"}
    assert told - called == streams, "these are in test_streams.py and test_live_stats.py"


def test_a_part_of_a_segment(opened: Opened) -> None:
    sent: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("range"))
        return httpx.Response(206, content=b"part")

    client = opened("http://queue.test", transport=httpx.MockTransport(answer))
    assert client.segment("jobs-1", start=5) == client.segment("jobs-1", stop=7) == b"part"
    client.segment("jobs-1", start=5, stop=7)
    assert sent == ["bytes=5-", "bytes=0-6", "bytes=5-6"]


def test_names_of_dots_are_no_steps_in_the_path(opened: Opened) -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"topic": "q", "cancelled": False})

    client = opened("http://queue.test", transport=httpx.MockTransport(answer))
    client.cancel_key("q", "..")
    client.cancel_key("q", ".")
    client.cancel_key("q", "../..")
    assert sent == [
        "/v0/topics/q/keys/%2E%2E",
        "/v0/topics/q/keys/%2E",
        "/v0/topics/q/keys/..%2F..",
    ]


@pytest.mark.parametrize("reply", ['{"topic":"q"}', "<html>", '{"topic":5,"cancelled":true}', ""])
def test_a_success_that_says_something_else_is_no_success(opened: Opened, reply: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=reply))
    client = opened("http://queue.test", transport=transport)
    with pytest.raises(UnexpectedReply, match="HTTP 200"):
        client.cancel("q", 1)


def test_lists_go_on_to_the_last_page(opened: Opened) -> None:
    pages: dict[str | None, dict[str, Any]] = {
        None: {"jobs": [VIEW], "next_after": 7},
        "7": {"jobs": [], "next_after": 900},
        "900": {"jobs": [{**VIEW, "$seq": 901}]},
    }

    def answer(request: httpx.Request) -> httpx.Response:
        page = pages[request.url.params.get("after")]
        return httpx.Response(200, json={"topic": "q", "scanned": 100, **page})

    client = opened("http://queue.test", transport=httpx.MockTransport(answer))
    assert [job.seq for job in client.jobs("q")] == [7, 901]


def test_more_seqs_than_one_request_takes_go_in_several(opened: Opened) -> None:
    sizes: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        sizes.append(len(body["seqs"]))
        skipped = [seq for seq in body["seqs"] if seq % 1000 == 0]
        deadlines = {str(seq): 5 for seq in body["seqs"] if seq % 1000}
        more = {"acked": 0, "extended": len(deadlines), "deadlines": deadlines}
        return httpx.Response(200, json={**SETTLED, **more, "skipped": skipped})

    client = opened("http://queue.test", transport=httpx.MockTransport(answer))
    settled = client.ack("q", range(1, 2501))
    assert sizes == [1000, 1000, 500]
    assert settled.skipped == [1000, 2000] and len(settled.counted) == 2498
    extended = client.extend("q", range(1, 1002), 1000)
    assert extended.extended == 1000 and extended.skipped == [1000] and 1001 in extended.deadlines


def test_an_error_in_bytes_that_are_no_text_is_a_gateway_s() -> None:
    failure = refusal(502, b'{"error":{"code":"\xb0","message":"x"}}', None)
    assert isinstance(failure, GatewayFailed)
