"""Rows of health, readiness, metrics, and of the description itself."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.openapi.row import ANY_JSON_OBJECT, TEXT, OperationRow
from logqueue.errors import StorageReadOnly
from logqueue.version import __version__

OPENAPI = "/v0/openapi.json"


def _health(pattern: str, name: str) -> OperationRow:
    return OperationRow(
        method="GET",
        pattern=pattern,
        name=name,
        group="operations",
        summary="The process is up",
        text="Open without a key, unless the operator asks for one.",
        reply=shapes.Health,
        example={"status": "ok", "version": __version__, "uptime_ms": 1730},
        serving=False,
    )


def _ready(pattern: str, name: str) -> OperationRow:
    return OperationRow(
        method="GET",
        pattern=pattern,
        name=name,
        group="operations",
        summary="Recovered, and takes writes",
        text="Open without a key, unless the operator asks for one.",
        reply=shapes.Ready,
        example={"status": "ready", "wal_replay_complete": True, "topics": 3},
        errors=(StorageReadOnly,),
    )


ROWS = [
    _health("/v0/health", "health"),
    _health("/healthz", "healthz"),
    _ready("/v0/ready", "ready"),
    _ready("/readyz", "readyz"),
    OperationRow(
        method="GET",
        pattern="/v0/metrics",
        name="metrics",
        group="operations",
        summary="Figures for operators",
        text="Prometheus text; OpenMetrics if `Accept` names `application/openmetrics-text`, a "
        "JSON object if it names `application/json`. Labels are within the prefixes of the key.",
        content={
            "text/plain": {"schema": TEXT, "example": "# TYPE logqueue_topics gauge\n"},
            "application/openmetrics-text": {
                "schema": TEXT,
                "example": "# TYPE logqueue_topics gauge\nlogqueue_topics 3.0\n# EOF\n",
            },
            "application/json": {"schema": ANY_JSON_OBJECT, "example": {"topics": 3}},
        },
        serving=False,
    ),
    OperationRow(
        method="GET",
        pattern=OPENAPI,
        name="openapi",
        group="operations",
        summary="This description",
        content={
            "application/json": {"schema": ANY_JSON_OBJECT, "example": {"openapi": "3.1.0"}},
        },
        serving=False,
    ),
]
