"""Tables of a report, made by hand: what the page and the exports are tried on.

Owns: believable numbers, and hostile ones. Nothing here needs Spark.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from logqueue.pipeline.lifecycle import report_tables
from logqueue.pipeline.lifecycle.tables import REPORTS

KINDS = {
    kind.name: kind
    for kind in (
        *REPORTS,
        report_tables.REPORT_LATENCY_BY_TAG,
        report_tables.REPORT_TAGS,
        report_tables.REPORT_WORKERS_BY_TAG,
        report_tables.REPORT_FAILURES_OVER_TIME,
        report_tables.REPORT_HEATMAP,
        report_tables.REPORT_EXPLANATIONS,
    )
}
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
Tables = dict[str, pa.Table]
Rows = list[dict[str, Any]]


def tables(**rows: Rows) -> Tables:
    """All tables of a report, those named with these rows, the others empty."""
    assert rows.keys() <= KINDS.keys()
    return {
        name: pa.Table.from_pylist(rows.get(name, []), schema=kind.arrow())
        for name, kind in KINDS.items()
    }


def busy_week(
    topics: Sequence[str] = ("mail",),
    *,
    buckets: int = 7 * 24,
    minutes: int = 60,
    workers: int = 6,
    reasons: Sequence[str] = ("TimeoutError: no answer in 30 s", "ValueError: no such mailbox"),
    sla: bool = True,
    tags: Sequence[str] = ("welcome", "invoice", "digest"),
) -> Tables:
    """A week in the life of some queues: a day's rhythm, one bad afternoon, one slow worker."""
    made: dict[str, Rows] = {name: [] for name in KINDS}
    for place, topic in enumerate(topics):
        chance = random.Random(f"{topic}{place}")
        _flow(made, topic, 1 / (place + 1), buckets, minutes, chance)
        _hands(made, topic, workers, buckets, minutes, chance)
        _fates(made, topic, list(reasons), 1 / (place + 1), chance)
        _tags(made, topic, tags, reasons, workers, chance)
        said = f"{topic[:120]}: 86 leases failed within 1 h, usually 5. "
        said += "Tag “invoice” accounts for 98% of the additional failures with 11% of the leases, "
        said += f"most with “{reasons[0][:120]}”."
        made["report_explanations"].append(
            {"rank": place + 1, "topic": topic, "symptom": "failures", "value": 86.0, "usual": 5.0}
            | {"from_at": MONDAY + timedelta(hours=9), "until_at": MONDAY + timedelta(hours=10)}
            | {"cause": "tag", "name": "invoice", "error": reasons[0], "share": 0.98}
            | {"traffic_share": 0.11, "evidence": 84, "sentence": said}
        )
        if sla:
            _promises(made, topic, chance)
    return tables(**made)


def _flow(
    made: dict[str, Rows],
    topic: str,
    size: float,
    buckets: int,
    minutes: int,
    chance: random.Random,
) -> None:
    ready = 0
    for n in range(buckets):
        at = MONDAY + timedelta(minutes=minutes * n)
        rhythm = 1 + math.sin((at.hour - 8) / 24 * 2 * math.pi) * 0.8
        came = int(900 * size * rhythm * chance.uniform(0.8, 1.2))
        slow = 3.0 if 0.55 < n / buckets < 0.62 else 1.0
        went = min(ready + came, int(1400 * size / slow))
        ready += came - went
        age = 0 if ready == 0 else int(ready / (1400 * size / slow + 1) * minutes * 60_000)
        dead = int(went * 0.004)
        made["report_throughput"].append(
            {"topic": topic, "bucket": at, "appended": came, "claimed": int(went * 1.06)}
            | {"acked": went - dead, "dead": dead, "dropped": 0, "held": 0}
            | {"released": int(went * 0.04), "expired": int(went * 0.02)}
        )
        made["report_backlog"].append(
            {"topic": topic, "bucket": at, "ready": ready, "delayed": 0}
            | {"in_flight": int(went / 60) + 3, "held": 0, "oldest_age_ms": age}
        )
        for metric, usual in (("wait", 140 + age * 0.6), ("run", 2400 * slow), ("e2e", 2600 + age)):
            row = {"topic": topic, "bucket": at, "metric": metric}
            made["report_latency"].append(
                row | _percentiles(usual * chance.uniform(0.9, 1.1), went)
            )
        made["report_capacity"].append(
            {"topic": topic, "bucket": at, "arrivals": came, "arrival_rate": came / minutes / 60}
            | {"mean_run_ms": 2600.0 * slow, "needed_workers": came / minutes / 60 * 2.6 * slow}
            | {"peak_workers": None, "seen_workers": 3, "utilisation": 0.6}
        )
    for metric, usual in (("wait", 900.0), ("run", 2700.0), ("e2e", 4200.0)):
        row = {"topic": topic, "bucket": None, "metric": metric}
        made["report_latency"].append(
            row | _percentiles(usual * chance.uniform(0.5, 2), buckets * 900)
        )


def _percentiles(usual: float, n: int) -> dict[str, int]:
    times = {"p50": 1.0, "p90": 2.2, "p95": 3.1, "p99": 7.4, "max": 19.0}
    return {"n": n, **{name: int(usual * factor) for name, factor in times.items()}}


def _hands(
    made: dict[str, Rows],
    topic: str,
    workers: int,
    buckets: int,
    minutes: int,
    chance: random.Random,
) -> None:
    width = minutes * 60_000
    for worker in range(workers):
        name = f"host-{worker // 4 + 1}/worker-{worker}"
        times = 2.4 if worker == workers - 1 and workers > 1 else 1.0
        row = {"topic": topic, "worker": name}
        whole = 0
        for n in range(worker % 3 * buckets // 9, buckets):
            at = MONDAY + timedelta(minutes=minutes * n)
            part = min(0.97, max(0.0, chance.gauss(0.45 + 0.3 * math.sin(at.hour / 4), 0.15)))
            whole += int(part * width)
            made["report_workers"].append(
                row
                | {"bucket": at, "claims": 60, "acks": 57, "failures": 3}
                | {"busy_ms": int(part * width), "utilisation": part}
                | {"p95_run": int(7000 * times)}
            )
        made["report_workers"].append(
            row
            | {"bucket": None, "claims": 60 * buckets, "acks": 57 * buckets}
            | {"failures": 3 * buckets, "busy_ms": whole, "utilisation": whole / width / buckets}
            | {"p95_run": int(7400 * times * chance.uniform(0.9, 1.1))}
        )
    made["report_stuck"] += [
        {
            "topic": topic,
            "job_seq": 4711 + n,
            "lease_id": f"lease_{n:x}",
            "worker": "host-1/worker-0",
        }
        | {"claimed_at": MONDAY, "held_ms": 4_200_000 // (n + 1), "extensions": 40 - n}
        | {"open": n == 0, "why": "extended,long" if n else "expired"}
        for n in range(3)
    ]


def _tags(
    made: dict[str, Rows],
    topic: str,
    tags: Sequence[str],
    reasons: Sequence[str],
    workers: int,
    chance: random.Random,
) -> None:
    """What belongs to tags, and histograms, of the flow that is there."""
    flow = [row for row in made["report_throughput"] if row["topic"] == topic]
    for part, tag in enumerate(tags, 2):
        row = {"topic": topic, "tag": tag}
        for at in (*flow, None):
            one = at or {
                name: sum(other[name] for other in flow)
                for name in ("appended", "claimed", "acked", "released", "expired")
            }
            bucket = {"bucket": at and at["bucket"]}
            failures = (one["released"] + one["expired"]) // part
            made["report_tags"].append(
                row
                | bucket
                | {"appended": one["appended"] // part, "acks": one["acked"] // part}
                | {"claims": one["claimed"] // part, "failures": failures}
                | {"run_ms": one["claimed"] // part * 2400}
            )
            for metric, usual in (("wait", 400.0), ("run", 2400.0)):
                values = _percentiles(usual * part * chance.uniform(0.9, 1.1), one["acked"] // part)
                made["report_latency_by_tag"].append(row | bucket | {"metric": metric} | values)
        for worker in range(workers):
            name = f"host-{worker // 4 + 1}/worker-{worker}"
            made["report_workers_by_tag"].append(
                row
                | {"worker": name, "claims": 500, "acks": 480, "failures": 20, "run_ms": 9_600}
                | {"p50_run": 2000, "p95_run": 7000}
            )
    for at in flow:
        for n, reason in enumerate((*reasons, None)):
            made["report_failures_over_time"].append(
                {"topic": topic, "bucket": at["bucket"], "n": int(at["released"]) // (n + 1)}
                | {"outcome": reason and "released", "reason": reason}
            )
        for metric, usual in (("wait", 120.0), ("run", 2400.0)):
            for n in range(-3, 6):
                low = int(usual * 2**n)
                made["report_heatmap"].append(
                    {"topic": topic, "bucket": at["bucket"], "metric": metric, "from_ms": low}
                    | {"to_ms": low * 2, "n": int(at["acked"] / (1 + n * n))}
                )


def _fates(
    made: dict[str, Rows], topic: str, reasons: list[str], size: float, chance: random.Random
) -> None:
    counts = {"acked": 141_220, "dead_lettered": 612, "ready": 1250, "in_flight": 24, "held": 3}
    counts |= {"superseded": 310, "delayed": 40}
    whole = sum(counts.values())
    for state, jobs in counts.items():
        row = {"topic": topic, "state": state, "jobs": int(jobs * size)}
        made["report_outcomes"].append(row | {"share": jobs / whole, "mean_attempts": 1.1})
    for n, reason in enumerate(reasons):
        made["report_failures"].append(
            {"topic": topic, "outcome": "released" if n else "dead_lettered", "reason": reason}
            | {"n": int(900 * size / (n + 1)), "jobs": int(612 * size / (n + 1))}
            | {"first_at": MONDAY, "last_at": MONDAY + timedelta(days=5), "sample_seq": 17 + n}
        )
    for attempts, jobs in ((0, 1290), (1, 138_000), (2, 3400), (3, 700), (4, 90)):
        row = {"topic": topic, "attempts": attempts, "jobs": int(jobs * size)}
        made["report_retries"].append(row | {"acked": int(jobs * size * (attempts > 0) * 0.98)})
    for outcome, run_ms in (("acked", 3.6e8), ("released", 9.4e6), ("expired", 6.1e6)):
        made["report_waste"].append(
            {"topic": topic, "outcome": outcome, "attempts": int(run_ms / 2500)}
            | {"run_ms": int(run_ms * size), "share": run_ms / 3.8e8}
        )
    made["report_poison"].append(
        {"topic": topic, "kind": "key", "value": "customer-88", "failures": 240, "jobs": 80}
        | {"acks": 1, "last_at": MONDAY, "sample_error": reasons[0]}
    )
    ways = {"claimed>acked": 138_000, "claimed>released>claimed>acked": 3100, "claimed": 24}
    ways |= {"claimed>expired>claimed>acked": 900, "waiting": 1290, "superseded": 310}
    ways |= {">".join(["claimed>expired"] * 9) + ">dead_lettered": 12}
    for variant, jobs in ways.items():
        median = None if variant in ("waiting", "claimed") else int(4100 * chance.uniform(0.5, 20))
        made["report_variants"].append(
            {"topic": topic, "variant": variant, "n": int(jobs * size) + 1}
            | {"share": jobs / whole, "median_e2e_ms": median}
        )
    for before, after, jobs in (("claimed", "acked", 141_220), ("claimed", "released", 4100)):
        made["report_dfg"].append(
            {"topic": topic, "from_step": before, "to_step": after, "n": int(jobs * size)}
            | {"median_gap_ms": 2400}
        )
    made["event_log"] += [
        {"case_id": f"{topic}-1", "activity": name, "lifecycle": "complete"}
        | {"timestamp": MONDAY + timedelta(seconds=n, microseconds=250_000), "resource": "w1"}
        | {"topic": topic, "seq": 1}
        for n, name in enumerate(("appended", "claimed", "acked"))
    ]


def _promises(made: dict[str, Rows], topic: str, chance: random.Random) -> None:
    for rule, limit in (("wait", 30_000), ("e2e", 300_000)):
        breaches = chance.randint(20, 400)
        made["report_sla_summary"].append(
            {"topic": topic, "rule": rule, "limit_ms": limit, "measured": 141_220}
            | {"breaches": breaches, "kept_share": 1 - breaches / 141_220, "worst_ms": limit * 9}
        )
        made["report_sla"] += [
            {"topic": topic, "rule": rule, "seq": 1000 + n, "value_ms": limit * 9 - n * 500}
            | {"limit_ms": limit, "at": MONDAY + timedelta(minutes=n)}
            for n in range(30)
        ]
