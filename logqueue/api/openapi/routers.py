"""Rows of routers."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.bodies import queues as queue_bodies
from logqueue.api.openapi.row import PAGING, STORING, TEXT, OperationRow, Parameter
from logqueue.errors import (
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)

ROUTERS = "/v0/routers"
ROUTER = "/v0/routers/*"
AUDIT: dict[str, Any] = {
    "router": "audit",
    "source": "transcode",
    "dest": "transcode.audit",
    "preserve_node": True,
    "preserve_tag": True,
    "filter": ["tag", "Glob", "hd*"],
    "allow_cycle": False,
    "guarantee": "at_least_once",
}

ROWS = [
    OperationRow(
        method="GET",
        pattern=ROUTERS,
        name="list_routers",
        group="routers",
        summary="List routers",
        text="Names ascending, in pages; a key with prefixes sees only what it may touch.",
        query=(
            *PAGING,
            Parameter("source", TEXT, "Only routers that copy from this topic."),
            Parameter("dest", TEXT, "Only routers that copy to this topic."),
        ),
        reply=shapes.RouterPage,
        example={
            "routers": [
                {
                    "router": "audit",
                    "source": "transcode",
                    "dest": "transcode.audit",
                    "guarantee": "at_least_once",
                    "forwarded_total": 2,
                }
            ],
            "performance": {"server_total_ms": 0.11},
        },
    ),
    OperationRow(
        method="PUT",
        pattern=ROUTER,
        name="put_router",
        group="routers",
        summary="Create or configure a router",
        text="It copies every new record of `source` to `dest`. Absent topics are created. The "
        "options are replaced; progress is kept.",
        body=queue_bodies.RouterBody,
        asks={"source": "transcode", "dest": "transcode.audit", "filter": "hd*"},
        reply=shapes.Router,
        example={**AUDIT, "created": True, "performance": {"server_total_ms": 1.92}},
        statuses=(200, 201),
        errors=(TopicNotFound, TopicExistsIncompatible, Throttled, RouterCycle, *STORING),
        creates=True,
    ),
    OperationRow(
        method="GET",
        pattern=ROUTER,
        name="get_router",
        group="routers",
        summary="A router and its progress",
        text="Once it has caught up.",
        reply=shapes.Router,
        example={**AUDIT, "forwarded_total": 2, "performance": {"server_total_ms": 0.12}},
        errors=(RouterNotFound,),
    ),
    OperationRow(
        method="DELETE",
        pattern=ROUTER,
        name="delete_router",
        group="routers",
        summary="Delete a router",
        text="Its topics and all copies stay. An absent router is `deleted: false`.",
        reply=shapes.RouterDropped,
        example={"router": "audit", "deleted": True, "performance": {"server_total_ms": 0.74}},
        errors=STORING,
    ),
]
