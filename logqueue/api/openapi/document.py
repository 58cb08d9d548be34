"""The OpenAPI document: rows, types, and the table of routes put together.

Must not know: what any single route is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from logqueue.api import replies
from logqueue.api.openapi import (
    jobs,
    logs,
    operations,
    producers,
    queues,
    refusals,
    routers,
    streams,
    topics,
)
from logqueue.api.openapi.bounds import ROUTER_NAME, TOPIC_NAME
from logqueue.api.openapi.row import U64, OperationRow, Parameter, Schema
from logqueue.api.openapi.schemas import (
    REF,
    Kind,
    body_name,
    body_schemas,
    patch_name,
    patch_schemas,
    reply_schemas,
)
from logqueue.errors import (
    Forbidden,
    Internal,
    InvalidRequest,
    LogqueueError,
    NotReady,
    PayloadTooLarge,
    ShuttingDown,
    Throttled,
    Unauthorized,
    UnsupportedMediaType,
)
from logqueue.server.auth import Scope
from logqueue.server.http.requests import HttpRequest, Reply
from logqueue.server.http.routing import NO_SCOPE, Body, Route
from logqueue.shapes import ErrorReply
from logqueue.version import __version__

OPENAPI_VERSION = "3.1.0"

ROWS: tuple[OperationRow, ...] = (
    *topics.ROWS,
    *queues.ROWS,
    *jobs.ROWS,
    *producers.ROWS,
    *logs.ROWS,
    *streams.ROWS,
    *routers.ROWS,
    *operations.ROWS,
)

_GROUPS = {
    "topics": "Named, ordered collections of records. A queue is a topic with `type: queue`.",
    "records": "Writing, reading and deleting records.",
    "queues": "Leasing jobs and settling them. Delivery is at least once.",
    "jobs": "Looking after jobs: without leasing them, and for operators.",
    "producers": "Transactional appends: chunks that become visible all at once, exactly once.",
    "logs": "The logs themselves, for bulk readers and archives.",
    "streams": "Following topics by server-sent events or WebSocket.",
    "routers": "Copying every new record of one topic to another.",
    "operations": "For supervisors, dashboards and tools.",
}

_TEXT: Schema = {"type": "string", "minLength": 1}


class _Name(NamedTuple):
    """What stands for a segment of a path."""

    parameter: str
    example: str | int
    text: str
    schema: Schema = _TEXT


_NAMES: dict[str, _Name] = {
    "topics": _Name(
        "topic",
        "transcode",
        "Name of a topic (a queue is one too): ASCII letter or digit, then up to 254 of "
        "`A-Z a-z 0-9 . _ : -`.",
    ),
    "jobs": _Name("seq", 1, "`$seq` of a job.", U64),
    "keys": _Name("key", "user-17", "Key of a job, percent-encoded."),
    "producers": _Name(
        "producer",
        "etl",
        "Name of a producer: as of routers.",
        {"type": "string", "pattern": ROUTER_NAME},
    ),
    "epochs": _Name("epoch", 7, "One above the last committed epoch; any for the first.", U64),
    "segments": _Name("id", "jobs-1", "Id of a segment, as the list tells it."),
    "watch": _Name("wid", "wid_2q0dEXAMPLEexample0xyz", "Id of a watch session."),
    "routers": _Name(
        "router", "audit", "Name of a router: as of topics, and `>` behind the first."
    ),
}
"""By the segment before it: the parameter that stands for a name in a path."""

_DESCRIPTION = """\
Durable topics and leased jobs over HTTP.

Every reply that is no success has the envelope `ErrorReply`; branch on `code`. Every refusal but
500 means that nothing happened. Unknown members and parameters are ignored, so expect new members
in replies. Integers are strict: `1.0` is none. Unknown paths are 404 `not_found`, other methods
405 `method_not_allowed`; HEAD answers like GET without a body."""

_KEY = """\
A key of this server. The scopes that a call needs are listed with it: `read`, `write`, `delete`,
`admin`; none includes another. A key may be limited to name prefixes. A server without keys lets
everybody do everything."""


class OpenApiRoute:
    """`GET /v0/openapi.json`."""

    def __init__(self) -> None:
        self._reply = Reply(b"{}")

    def describe(self, routes: Iterable[Route]) -> None:
        """Make the document, once."""
        self._reply = Reply(replies.encode(document(routes)))

    def get(self, request: HttpRequest) -> Reply:
        """Answer with it."""
        return self._reply


def path_of(pattern: str) -> str:
    """A route's pattern as OpenAPI writes it."""
    segments = pattern.split("/")
    return "/".join(
        f"{{{_NAMES[before].parameter}}}" if segment == "*" else segment
        for before, segment in zip(["", *segments], segments, strict=False)
    )


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The description of those routes that have a row."""
    rows = {(row.method, row.pattern): row for row in ROWS}
    told = [(route, row) for route in routes if (row := rows.get((route.method, route.pattern)))]
    responses: dict[str, Any] = {
        type(error).__name__: refusals.response([type(error)]) for error in refusals.EXAMPLES
    }
    paths: dict[str, dict[str, Any]] = {}
    for route, row in told:
        operation = _operation(route, row, responses)
        paths.setdefault(path_of(route.pattern), {})[route.method.lower()] = operation
    bodies, patched = [
        [
            row.body
            for route, row in told
            if row.body is not None and (route.body is Body.MERGE_PATCH) is is_patch
        ]
        for is_patch in (False, True)
    ]
    shown: list[Kind] = [ErrorReply, *(row.reply for _, row in told if row.reply is not None)]
    shown += [kind for _, row in told for kind in row.frames.values()]
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "logqueue",
            "version": __version__,
            "summary": "Durable topics and leased jobs over HTTP.",
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": {
                **reply_schemas(shown),
                **body_schemas(bodies),
                **patch_schemas(patched),
            },
            "responses": responses,
            "examples": refusals.examples(),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": _KEY},
                "token": {
                    "type": "apiKey",
                    "in": "query",
                    "name": "token",
                    "description": "The same key, for clients that cannot set headers.",
                },
            },
        },
    }


def _operation(route: Route, row: OperationRow, responses: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": row.name,
        "tags": [row.group],
        "summary": row.summary,
        "security": _security(route),
        **row.extra,
        "responses": {
            **{str(status): _success(row) for status in row.statuses},
            **_refusals(route, row, responses),
        },
    }
    if row.text:
        operation["description"] = row.text
    parameters = [*_path_parameters(row), *map(_query_parameter, row.query)]
    if parameters:
        operation["parameters"] = parameters
    if row.body is not None:
        operation["requestBody"] = _request_body(route, row)
    return operation


def _security(route: Route) -> list[dict[str, list[str]]]:
    scopes = [scope.name.lower() for scope in Scope if scope in route.scope and scope.name]
    if route.probe:
        return [{}, {"key": scopes}]
    ways: list[dict[str, list[str]]] = [{"key": scopes}]
    if route.stream is not None:
        ways.append({"token": scopes})
    return ways


def _path_parameters(row: OperationRow) -> list[dict[str, Any]]:
    segments = row.pattern.split("/")
    parameters = []
    for before, segment in zip(["", *segments], segments, strict=False):
        if segment == "*":
            name, example, text, schema = _NAMES[before]
            if row.creates:
                pattern = ROUTER_NAME if before == "routers" else TOPIC_NAME
                schema = {**schema, "pattern": pattern}
            parameters.append(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "description": text,
                    "schema": schema,
                    "example": example,
                }
            )
    return parameters


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    told = {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.text,
        "schema": parameter.schema,
    }
    if parameter.example is not None:
        told["example"] = parameter.example
    return told


def _request_body(route: Route, row: OperationRow) -> dict[str, Any]:
    assert row.body is not None
    name, media_types = body_name(row.body.__name__), ["application/json"]
    if route.body is Body.MERGE_PATCH:
        name = patch_name(row.body.__name__)
        media_types.append("application/merge-patch+json")
    schema: dict[str, Any] = {"$ref": REF + name}
    media = {"schema": {"allOf": [schema, row.only]} if row.only else schema, "example": row.asks}
    return {
        "required": route.body is not Body.OPTIONAL,
        "content": dict.fromkeys(media_types, media),
    }


def _success(row: OperationRow) -> dict[str, Any]:
    content: dict[str, Schema] = dict(row.content)
    if row.reply is not None:
        content["application/json"] = {
            "schema": {"$ref": REF + row.reply.__name__},
            "example": row.example,
        }
    told: dict[str, Any] = {"description": row.summary}
    if content:
        told["content"] = content
    if row.frames:
        told["x-events"] = {
            event: {"$ref": REF + kind.__name__} for event, kind in row.frames.items()
        }
    return told


def _refusals(route: Route, row: OperationRow, responses: dict[str, Any]) -> dict[str, Any]:
    """References to the replies that refuse; those that no route has had yet are added."""
    told = {}
    for status, kinds in refusals.by_status(errors_of(route, row)).items():
        name = "Or".join(kind.__name__ for kind in kinds)
        if name not in responses:
            responses[name] = refusals.response(kinds)
        told[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return told


def errors_of(route: Route, row: OperationRow) -> list[type[LogqueueError]]:
    """All that a route can answer with: what follows from its kind, and its own."""
    kinds: list[type[LogqueueError]] = [InvalidRequest, Unauthorized, Throttled, Internal]
    if route.scope != NO_SCOPE:
        kinds.append(Forbidden)
    if route.body is not Body.IGNORED:
        kinds += [PayloadTooLarge, UnsupportedMediaType]
    if row.serving:
        kinds += [NotReady, ShuttingDown]
    return [*kinds, *row.errors]
