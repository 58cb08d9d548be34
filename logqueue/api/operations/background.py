"""Operations about background operations."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import Operation
from logqueue.errors import NotFound
from logqueue.model.scopes import Scope

EXAMPLE = {
    "id": "op_1a1faeb833a001",
    "action": "retry",
    "topic": "transcode",
    "state": "done",
    "dry_run": False,
    "total": 3,
    "scanned": 3,
    "matched": 2,
    "changed": 2,
    "skipped": 0,
    "started_at": 1795211102560,
    "finished_at": 1795211102571,
}

OPERATIONS = (
    Operation(
        name="list_operations",
        method="GET",
        pattern="/v0/operations",
        scope=Scope.READ,
        group="operations",
        summary="List background operations",
        doc="background-operations",
        text="The last 100 since the server started, the latest first; only those on topics "
        "within the prefixes of the key.",
        reply=shapes.BackgroundList,
        example={"operations": [EXAMPLE], "performance": {"server_total_ms": 0.1}},
    ),
    Operation(
        name="get_operation",
        method="GET",
        pattern="/v0/operations/*",
        scope=Scope.READ,
        group="operations",
        summary="Get a background operation",
        doc="background-operations",
        text="Its counts so far.",
        reply=shapes.BackgroundReply,
        example={"operation": EXAMPLE, "performance": {"server_total_ms": 0.1}},
        errors=(NotFound,),
    ),
    Operation(
        name="stop_operation",
        method="DELETE",
        pattern="/v0/operations/*",
        scope=Scope.ADMIN,
        group="operations",
        summary="Stop a background operation",
        doc="background-operations",
        text="It ends before its next step, with the state `cancelled`; what it has done stays "
        "done. One that is over stays as it is.",
        reply=shapes.BackgroundReply,
        example={
            "operation": {**EXAMPLE, "state": "cancelled"},
            "performance": {"server_total_ms": 0.1},
        },
        errors=(NotFound,),
    ),
)
