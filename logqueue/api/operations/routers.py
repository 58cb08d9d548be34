"""Operations of routers."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.bodies import routers as router_bodies
from logqueue.api.operations.row import (
    PAGING,
    TEXT,
    Body,
    Operation,
    Parameter,
)
from logqueue.core import commands as cmd
from logqueue.errors import (
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)
from logqueue.model.scopes import Scope

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

OPERATIONS = (
    Operation(
        name="list_routers",
        method="GET",
        pattern=ROUTERS,
        scope=Scope.READ,
        group="routers",
        summary="List routers",
        doc="routers",
        text="In pages, in ascending order of names. A key limited to prefixes sees only the "
        "names it may access.",
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
    Operation(
        name="put_router",
        method="PUT",
        pattern=ROUTER,
        scope=Scope.ADMIN,
        body_policy=Body.REQUIRED,
        command=cmd.PutRouter,
        group="routers",
        summary="Create or configure a router",
        doc="routers",
        text="A router copies every new record of `source` to `dest`. Missing topics are created. "
        "The options are replaced; the progress is kept.",
        body=router_bodies.RouterBody,
        asks={"source": "transcode", "dest": "transcode.audit", "filter": "hd*"},
        reply=shapes.Router,
        example={**AUDIT, "created": True, "performance": {"server_total_ms": 1.92}},
        statuses=(200, 201),
        errors=(TopicNotFound, TopicExistsIncompatible, Throttled, RouterCycle),
        creates=True,
    ),
    Operation(
        name="get_router",
        method="GET",
        pattern=ROUTER,
        scope=Scope.READ,
        group="routers",
        summary="Get a router and its progress",
        doc="routers",
        text="Waits until the router has caught up.",
        reply=shapes.Router,
        example={**AUDIT, "forwarded_total": 2, "performance": {"server_total_ms": 0.12}},
        errors=(RouterNotFound,),
    ),
    Operation(
        name="delete_router",
        method="DELETE",
        pattern=ROUTER,
        scope=Scope.DELETE,
        command=cmd.DropRouter,
        group="routers",
        summary="Delete a router",
        doc="routers",
        text="Topics and existing copies are kept. If the router does not exist, `deleted` is "
        "false.",
        reply=shapes.RouterDropped,
        example={"router": "audit", "deleted": True, "performance": {"server_total_ms": 0.74}},
    ),
)
