"""Operations of health, readiness, metrics, and of the description itself."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import ANY_JSON_OBJECT, TEXT, KeyPolicy, Operation
from logqueue.errors import StorageReadOnly
from logqueue.model.scopes import Scope
from logqueue.version import __version__

OPENAPI = "/v0/openapi.json"


def _health(pattern: str, name: str) -> Operation:
    return Operation(
        name=name,
        method="GET",
        pattern=pattern,
        key=KeyPolicy.PROBE,
        group="operations",
        summary="Check that the process is up",
        doc="health-readiness-metrics",
        text="No key is needed, unless the operator requires one.",
        reply=shapes.Health,
        example={"status": "ok", "version": __version__, "uptime_ms": 1730},
        serving=False,
    )


def _ready(pattern: str, name: str) -> Operation:
    return Operation(
        name=name,
        method="GET",
        pattern=pattern,
        key=KeyPolicy.PROBE,
        group="operations",
        summary="Check that the server is ready for writes",
        doc="health-readiness-metrics",
        text="No key is needed, unless the operator requires one.",
        reply=shapes.Ready,
        example={"status": "ready", "wal_replay_complete": True, "topics": 3},
        errors=(StorageReadOnly,),
    )


OPERATIONS = (
    _health("/v0/health", "health"),
    _health("/healthz", "healthz"),
    _ready("/v0/ready", "ready"),
    _ready("/readyz", "readyz"),
    Operation(
        name="metrics",
        method="GET",
        pattern="/v0/metrics",
        scope=Scope.READ,
        group="operations",
        summary="Get metrics",
        doc="health-readiness-metrics",
        text="Prometheus text; OpenMetrics if `Accept` names `application/openmetrics-text`, a "
        "JSON object if it names `application/json`. Labels are limited to the prefixes of the "
        "key.",
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
    Operation(
        name="openapi",
        method="GET",
        pattern=OPENAPI,
        access="none beyond a key",
        group="operations",
        summary="Get this description",
        doc="openapi",
        content={
            "application/json": {"schema": ANY_JSON_OBJECT, "example": {"openapi": "3.1.0"}},
        },
        serving=False,
    ),
)
