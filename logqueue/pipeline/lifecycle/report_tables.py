"""The tables that the report job can build: names, columns, types, and what each column means.

Owns: what a row of each is. Must not know: how it is computed.
"""

from __future__ import annotations

from logqueue.pipeline.lifecycle.table_kind import BUCKET, BUCKET_OR_ALL, TOPIC, TableKind, columns

REPORT_THROUGHPUT = TableKind(
    "report_throughput",
    "report",
    "What happened in a queue in a bucket, counted.",
    columns(
        TOPIC,
        BUCKET,
        "appended BIGINT: jobs appended",
        "claimed BIGINT: leases given",
        "acked BIGINT: jobs done",
        "released BIGINT: leases released",
        "expired BIGINT: leases that ran out, or were lost",
        "dead BIGINT: jobs dead-lettered or rejected",
        "dropped BIGINT: jobs that left otherwise: dropped, superseded, cancelled, deleted, "
        "redriven, past their time to live",
        "held BIGINT: jobs parked",
    ),
    ("topic", "bucket"),
)

REPORT_LATENCY = TableKind(
    "report_latency",
    "report",
    "How long it took: waits by the bucket of the first claim, runs and whole jobs by that of the "
    "ack. Jobs that are ready at the end of the range and were never claimed count as waits, too, "
    "in the last bucket, with the time from ready until then. Only leases that ended in an ack "
    "count as runs, only acked jobs as whole ones.",
    columns(
        TOPIC,
        BUCKET_OR_ALL,
        "metric STRING: `wait` (ready to first claim), `run` (claim to ack), `e2e` (ready to ack)",
        "n BIGINT: how many were measured",
        "p50 BIGINT: ms",
        "p90 BIGINT: ms",
        "p95 BIGINT: ms",
        "p99 BIGINT: ms",
        "max BIGINT: ms",
        "waiting BIGINT: with `wait`, how many of the `n` had not been claimed at the end of the "
        "range; they have waited so long at least",
    ),
    ("topic", "metric", "bucket"),
)

REPORT_WORKERS = TableKind(
    "report_workers",
    "report",
    "What a worker did in a bucket.",
    columns(
        TOPIC,
        "worker STRING: the node",
        BUCKET_OR_ALL,
        "claims BIGINT: leases it was given",
        "acks BIGINT: jobs it finished",
        "failures BIGINT: leases that ended otherwise; jobs released unstarted do not count",
        "busy_ms BIGINT: time under leases that falls into the bucket",
        "utilisation DOUBLE: `busy_ms` over the bucket's length: jobs in hand on average",
        "p95_run BIGINT: of the runs that ended in an ack here, ms",
    ),
    ("topic", "worker", "bucket"),
)

REPORT_BACKLOG = TableKind(
    "report_backlog",
    "report",
    "The state of a queue at the end of a bucket. A bucket in which nothing happened has no row: "
    "the depths are those of the row before it. The last row is the state at the end of the range.",
    columns(
        TOPIC,
        BUCKET,
        "ready BIGINT: jobs that could be claimed",
        "delayed BIGINT: jobs that were not due yet",
        "in_flight BIGINT: jobs under a lease",
        "held BIGINT: jobs parked",
        "oldest_age_ms BIGINT: how long the oldest ready job had been waiting; 0 without one",
    ),
    ("topic", "bucket"),
)

REPORT_FAILURES = TableKind(
    "report_failures",
    "report",
    "A way in which jobs fail: leases that did not end in an ack, and jobs that ended badly "
    "without a lease. The 1000 most frequent of each topic.",
    columns(
        TOPIC,
        "outcome STRING: how the lease or the job ended",
        "reason STRING: first line of what the worker said, or else the reason in the log",
        "n BIGINT: how often",
        "jobs BIGINT: how many jobs",
        "first_at TIMESTAMP: first time",
        "last_at TIMESTAMP: last time",
        "sample_seq BIGINT: one of the jobs",
    ),
    ("topic", "outcome", "reason"),
)

REPORT_SLA = TableKind(
    "report_sla",
    "report",
    "A breach of a limit, jobs still waiting at the end of the range included. The 1000 worst of "
    "each topic and rule.",
    columns(
        TOPIC,
        "rule STRING: `wait`, `run` or `e2e`",
        "seq BIGINT: the job",
        "value_ms BIGINT: how long it took, or has taken until the end of the range",
        "limit_ms BIGINT: the limit",
        "at TIMESTAMP: when the limit was passed",
    ),
    ("topic", "rule", "seq", "at"),
)

REPORT_SLA_SUMMARY = TableKind(
    "report_sla_summary",
    "report",
    "How well a limit was kept.",
    columns(
        TOPIC,
        "rule STRING: `wait`, `run` or `e2e`",
        "limit_ms BIGINT: the limit",
        "measured BIGINT: how many were held against it",
        "breaches BIGINT: how many were over it",
        "kept_share DOUBLE: share within the limit, 0 to 1",
        "worst_ms BIGINT: the longest",
    ),
    ("topic", "rule"),
)

REPORT_CAPACITY = TableKind(
    "report_capacity",
    "report",
    "How many workers the work needed: arrival rate times mean run.",
    columns(
        TOPIC,
        BUCKET_OR_ALL,
        "arrivals BIGINT: jobs appended",
        "arrival_rate DOUBLE: of them per second",
        "mean_run_ms DOUBLE: mean of the leases that ended here",
        "needed_workers DOUBLE: jobs in hand that keep up with the arrivals",
        "peak_workers DOUBLE: for the whole range: the most that any bucket needed",
        "seen_workers BIGINT: workers that had a lease",
        "utilisation DOUBLE: time under leases over (seen workers times the bucket's length)",
    ),
    ("topic", "bucket"),
)

REPORT_STUCK = TableKind(
    "report_stuck",
    "report",
    "A lease that looks stuck. The 1000 longest of each topic.",
    columns(
        TOPIC,
        "job_seq BIGINT: the job",
        "lease_id STRING: the lease",
        "worker STRING: who held it",
        "claimed_at TIMESTAMP: since when",
        "held_ms BIGINT: how long, until it ended or the range did",
        "extensions INT: how often it was extended",
        "open BOOLEAN: whether it is still held at the end of the range",
        "why STRING: `extended` (too often), `long` (compared with the "
        "others), `expired` (never settled), or several with commas",
    ),
    ("topic", "job_seq", "claimed_at"),
)

REPORT_VARIANTS = TableKind(
    "report_variants",
    "report",
    "A way through the queue. The 1000 most frequent of each topic.",
    columns(
        TOPIC,
        "variant STRING: what happened to such jobs, in order",
        "n BIGINT: how many jobs",
        "share DOUBLE: of the topic's jobs, 0 to 1",
        "median_e2e_ms BIGINT: median from ready to finished; null when none has finished",
    ),
    ("topic", "n", "variant"),
)

REPORT_DFG = TableKind(
    "report_dfg",
    "report",
    "What directly follows what (directly-follows graph).",
    columns(
        TOPIC,
        "from_step STRING: what happened",
        "to_step STRING: what happened next to the same job",
        "n BIGINT: how often",
        "median_gap_ms BIGINT: median of the time between",
    ),
    ("topic", "from_step", "to_step"),
)

REPORT_OUTCOMES = TableKind(
    "report_outcomes",
    "report",
    "The jobs of a queue by what became of them.",
    columns(
        TOPIC,
        "state STRING: as in `jobs`",
        "jobs BIGINT: how many",
        "share DOUBLE: of the topic's jobs, 0 to 1",
        "mean_attempts DOUBLE: leases for each of them",
    ),
    ("topic", "state"),
)

REPORT_RETRIES = TableKind(
    "report_retries",
    "report",
    "The jobs of a queue by how often they were claimed.",
    columns(
        TOPIC,
        "attempts INT: how often; 20 means 20 or more",
        "jobs BIGINT: how many",
        "acked BIGINT: how many of them were acked",
    ),
    ("topic", "attempts"),
)

REPORT_WASTE = TableKind(
    "report_waste",
    "report",
    "Time under leases by how they ended; what did not end in an ack was for nothing.",
    columns(
        TOPIC,
        "outcome STRING: as in `attempts`",
        "attempts BIGINT: how many leases",
        "run_ms BIGINT: time under them",
        "share DOUBLE: of the topic's time under leases, 0 to 1",
    ),
    ("topic", "outcome"),
)

REPORT_POISON = TableKind(
    "report_poison",
    "report",
    "A key or tag that fails across jobs. The 1000 worst of each topic.",
    columns(
        TOPIC,
        "kind STRING: `key` or `tag`",
        "value STRING: the key or tag",
        "failures BIGINT: leases that did not end in an ack",
        "jobs BIGINT: jobs they belong to, at least 2",
        "acks BIGINT: leases under the same key or tag that did end in an ack",
        "last_at TIMESTAMP: last failure",
        "sample_error STRING: first line of one of the errors",
    ),
    ("topic", "kind", "value"),
)

REPORT_LATENCY_BY_TAG = TableKind(
    "report_latency_by_tag",
    "report",
    "As `report_latency`, for the 50 tags of each topic with the most jobs.",
    columns(
        TOPIC,
        "tag STRING: the tag of the jobs; null for jobs without one",
        BUCKET_OR_ALL,
        "metric STRING: as in `report_latency`",
        "n BIGINT: how many were measured",
        "p50 BIGINT: ms",
        "p95 BIGINT: ms",
        "p99 BIGINT: ms",
        "max BIGINT: ms",
        "waiting BIGINT: as in `report_latency`",
    ),
    ("topic", "tag", "metric", "bucket"),
)

REPORT_TAGS = TableKind(
    "report_tags",
    "report",
    "What happened in a bucket to the jobs with a tag, for the 50 tags of each topic with the most "
    "jobs.",
    columns(
        TOPIC,
        "tag STRING: the tag; null for jobs without one",
        BUCKET_OR_ALL,
        "appended BIGINT: jobs appended",
        "claims BIGINT: leases that began",
        "acks BIGINT: leases that ended in an ack",
        "failures BIGINT: leases that ended otherwise; jobs released unstarted do not count",
        "run_ms BIGINT: length of the leases that ended",
    ),
    ("topic", "tag", "bucket"),
)

REPORT_WORKERS_BY_TAG = TableKind(
    "report_workers_by_tag",
    "report",
    "What a worker did with the jobs of a tag, over the whole range. The 1000 pairs of each topic "
    "with the most leases.",
    columns(
        TOPIC,
        "worker STRING: the node",
        "tag STRING: the tag; null for jobs without one",
        "claims BIGINT: leases it was given",
        "acks BIGINT: leases that ended in an ack",
        "failures BIGINT: leases that ended otherwise; jobs released unstarted do not count",
        "run_ms BIGINT: length of the leases that ended",
        "p50_run BIGINT: median of the runs that ended in an ack, ms",
        "p95_run BIGINT: 95th percentile of them, ms",
    ),
    ("topic", "worker", "tag"),
)

REPORT_FAILURES_OVER_TIME = TableKind(
    "report_failures_over_time",
    "report",
    "Failures in a bucket, as `report_failures` counts them. The 20 most frequent ways to fail of "
    "each topic have rows of their own.",
    columns(
        TOPIC,
        BUCKET,
        "outcome STRING: as in `report_failures`; null for all ways beyond the 20",
        "reason STRING: as in `report_failures`; null for all ways beyond the 20",
        "n BIGINT: how many",
    ),
    ("topic", "bucket", "outcome", "reason"),
)

REPORT_HEATMAP = TableKind(
    "report_heatmap",
    "report",
    "A histogram of the values of `report_latency` in each bucket of time. Intervals are on a log "
    "scale, four for each power of two: 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … ms.",
    columns(
        TOPIC,
        BUCKET,
        "metric STRING: as in `report_latency`",
        "from_ms BIGINT: lower end of the interval, which belongs to it",
        "to_ms BIGINT: upper end of the interval, which does not",
        "n BIGINT: how many values are in it",
    ),
    ("topic", "metric", "bucket", "from_ms"),
)

REPORT_EXPLANATIONS = TableKind(
    "report_explanations",
    "report",
    "What accounts for the worst stretches of time: a worker, tag, key or error, more arrivals, or "
    "missing workers. Only where the log has enough evidence.",
    columns(
        "rank INT: 1 for the most important",
        TOPIC,
        "from_at TIMESTAMP: beginning of the stretch; the whole range for what is always so",
        "until_at TIMESTAMP: its end",
        "symptom STRING: `failures`, `runs` (slow ones), `waits` or `backlog`",
        "value DOUBLE: failures, slow runs, mean wait in ms, or jobs by which the backlog grew",
        "usual DOUBLE: the same in the other stretches",
        "cause STRING: `worker`, `tag`, `key`, `error`, `outcome` (of failures without an error), "
        "`arrivals` or `missing` (workers)",
        "name STRING: which one; empty for `arrivals` of no single tag or key",
        "error STRING: the error of most of its failures",
        "share DOUBLE: of the increase, 0 to 1",
        "traffic_share DOUBLE: its share of the leases or jobs, 0 to 1",
        "evidence BIGINT: failures, slow runs or jobs that it is concluded from",
        "sentence STRING: all this in words",
    ),
    ("rank",),
)

EVENT_LOG = TableKind(
    "event_log",
    "report",
    "Steps of jobs, as tools for process mining read them.",
    columns(
        "case_id STRING: the job: topic, instance and seq",
        "activity STRING: what happened",
        "lifecycle STRING: transition of the standard XES life cycle",
        "timestamp TIMESTAMP: when",
        "resource STRING: the worker",
        TOPIC,
        "seq BIGINT: the job",
    ),
    ("topic", "seq", "timestamp"),
)

REPORTS = (
    REPORT_THROUGHPUT,
    REPORT_LATENCY,
    REPORT_WORKERS,
    REPORT_BACKLOG,
    REPORT_FAILURES,
    REPORT_SLA,
    REPORT_SLA_SUMMARY,
    REPORT_CAPACITY,
    REPORT_STUCK,
    REPORT_VARIANTS,
    REPORT_DFG,
    REPORT_OUTCOMES,
    REPORT_RETRIES,
    REPORT_WASTE,
    REPORT_POISON,
    REPORT_FAILURES_OVER_TIME,
    REPORT_HEATMAP,
    REPORT_LATENCY_BY_TAG,
    REPORT_TAGS,
    REPORT_WORKERS_BY_TAG,
    REPORT_EXPLANATIONS,
    EVENT_LOG,
)
"""What the report job can build."""
