"""The tables of a simulation: names, columns, and what they mean.

Owns: their description. Must not know: how they are computed.
"""

from __future__ import annotations

from logqueue.pipeline.lifecycle.table_kind import BUCKET, TOPIC, TableKind, columns

SCENARIO = "scenario STRING: what was different, as written; `as measured` for nothing"
METRIC = (
    "metric STRING: `wait_p50`, `wait_p95`, `wait_p99` (ready to first claim, ms; jobs still "
    "waiting count with their wait so far), `whole_p50`, `whole_p95` (ready to done, ms), "
    "`backlog_max` (jobs), `done`, `dead` (jobs), `utilisation` (time under leases over time in "
    "which workers were present)"
)
LOW = "low DOUBLE: 10th percentile of the histories replayed"
MID = "mid DOUBLE: their median"
HIGH = "high DOUBLE: their 90th percentile"

REPORT_WHAT_IF = TableKind(
    "report_what_if",
    "simulate",
    "What a queue would have done in a scenario.",
    columns(
        TOPIC,
        SCENARIO,
        METRIC,
        "measured DOUBLE: as it was; null where nothing was measured",
        LOW,
        MID,
        HIGH,
    ),
    ("topic", "scenario", "metric"),
)

REPORT_WHAT_IF_BACKLOG = TableKind(
    "report_what_if_backlog",
    "simulate",
    "How many jobs would have been waiting at the end of a bucket in a scenario.",
    columns(TOPIC, SCENARIO, BUCKET, "measured BIGINT: as it was", LOW, MID, HIGH),
    ("topic", "scenario", "bucket"),
)

REPORT_BACK_TEST = TableKind(
    "report_back_test",
    "simulate",
    "How well the simulation predicts: the second half of the log, replayed with runs drawn from "
    "the first half only.",
    columns(
        TOPIC,
        METRIC,
        "measured DOUBLE: in the second half",
        LOW,
        MID,
        HIGH,
        "error DOUBLE: distance of `mid` from `measured` over `measured`; null where that is 0",
    ),
    ("topic", "metric"),
)

SIMULATED = (REPORT_WHAT_IF, REPORT_WHAT_IF_BACKLOG, REPORT_BACK_TEST)
"""What a simulation makes."""
