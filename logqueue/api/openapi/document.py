"""The OpenAPI document: the table of operations and the types it names, put together.

Must not know: what any single operation is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from logqueue.api import operations, replies
from logqueue.api.openapi import refusals
from logqueue.api.openapi.bounds import ROUTER_NAME, TOPIC_NAME
from logqueue.api.openapi.schemas import (
    REF,
    Kind,
    body_name,
    body_schemas,
    patch_name,
    patch_schemas,
    reply_schemas,
)
from logqueue.api.operations import GROUPS, OPERATIONS, Body, KeyPolicy, Operation
from logqueue.api.operations.row import STORING, U64, Parameter, Schema
from logqueue.errors import (
    Fenced,
    Forbidden,
    Internal,
    InvalidRequest,
    LogqueueError,
    NotReady,
    NotWriter,
    PayloadTooLarge,
    ReplicaUnavailable,
    ShuttingDown,
    Throttled,
    Unauthorized,
    UnsupportedMediaType,
)
from logqueue.model.scopes import NO_SCOPE, Scope
from logqueue.shapes import ErrorReply
from logqueue.version import __version__

OPENAPI_VERSION = "3.1.0"

_TEXT: Schema = {"type": "string", "minLength": 1}


class _Name(NamedTuple):
    """The parameter of a path segment."""

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
        "Name of a producer: the same grammar as for routers.",
        {"type": "string", "pattern": ROUTER_NAME},
    ),
    "epochs": _Name(
        "epoch", 7, "One above the last committed epoch; any number for the first.", U64
    ),
    "segments": _Name("id", "jobs-1", "Id of a segment, from the list of segments."),
    "watch": _Name("wid", "wid_2q0dEXAMPLEexample0xyz", "Id of a watch session."),
    "operations": _Name("id", "op_1a1faeb833a001", "Id of a background operation."),
    "schedules": _Name("schedule", "nightly", "Name of a schedule: as for topics."),
    "batches": _Name("batch", "import-17", "Name of a batch: as for topics."),
    "routers": _Name(
        "router",
        "audit",
        "Name of a router: as for topics, with `>` allowed after the first character.",
    ),
}
"""By the segment before it: the parameter that replaces a name in a path."""

_DESCRIPTION = """\
Durable topics and leased jobs over HTTP.

Every reply that is not a success has the envelope `ErrorReply`; branch on `code`. Every refusal but
500 means that nothing happened. Unknown members and parameters are ignored, so expect new members
in replies. Integers are strict: `1.0` is refused. Unknown paths are 404 `not_found`, other methods
405 `method_not_allowed`; HEAD answers like GET without a body."""

_KEY = """\
An API key. Each operation lists the scopes it needs: `read`, `write`, `delete`,
`admin`; no scope includes another. A key may be limited to name prefixes. A server without keys
allows every request."""


@cache
def encoded() -> bytes:
    """The document of all operations, as it is served."""
    return replies.encode(document(OPERATIONS))


def path_of(pattern: str) -> str:
    """A route's pattern as OpenAPI writes it."""
    segments = pattern.split("/")
    return "/".join(
        f"{{{_NAMES[before].parameter}}}" if segment == "*" else segment
        for before, segment in zip(["", *segments], segments, strict=False)
    )


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The description of some operations."""
    described = [*operations]
    responses: dict[str, Any] = {
        type(error).__name__: refusals.response([type(error)]) for error in refusals.EXAMPLES
    }
    paths: dict[str, dict[str, Any]] = {}
    for operation in described:
        methods = paths.setdefault(path_of(operation.pattern), {})
        methods[operation.method.lower()] = _operation(operation, responses)
    bodies, patched = [
        [
            operation.body
            for operation in described
            if operation.body is not None
            and (operation.body_policy is Body.MERGE_PATCH) is is_patch
        ]
        for is_patch in (False, True)
    ]
    shown: list[Kind] = [ErrorReply]
    for operation in described:
        shown += [kind for kind in (operation.reply, operation.other_reply) if kind is not None]
    shown += [kind for operation in described for kind in operation.frames.values()]
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
        "tags": [{"name": name, "description": text} for name, text in GROUPS.items()],
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


def _operation(operation: Operation, responses: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "security": _security(operation),
        **operation.extra,
        "responses": {
            **{str(status): _success(operation) for status in operation.statuses},
            **_refusals(operation, responses),
        },
    }
    if operation.text:
        described["description"] = operation.text
    parameters = [*_path_parameters(operation), *map(_query_parameter, operation.query)]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = _request_body(operation, operation.body)
    return described


def _security(operation: Operation) -> list[dict[str, list[str]]]:
    scopes = [scope.name.lower() for scope in Scope if scope in operation.scope and scope.name]
    if operation.key is KeyPolicy.PROBE:
        return [{}, {"key": scopes}]
    ways: list[dict[str, list[str]]] = [{"key": scopes}]
    if operation.kind is operations.Kind.STREAM:
        ways.append({"token": scopes})
    return ways


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    segments = operation.pattern.split("/")
    parameters = []
    for before, segment in zip(["", *segments], segments, strict=False):
        if segment == "*":
            name, example, text, schema = _NAMES[before]
            if operation.creates:
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
    described = {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.text,
        "schema": parameter.schema,
    }
    if parameter.example is not None:
        described["example"] = parameter.example
    return described


def _request_body(operation: Operation, kind: type[msgspec.Struct]) -> dict[str, Any]:
    name, media_types = body_name(kind.__name__), ["application/json"]
    if operation.body_policy is Body.MERGE_PATCH:
        name = patch_name(kind.__name__)
        media_types.append("application/merge-patch+json")
    schema: dict[str, Any] = {"$ref": REF + name}
    if operation.only:
        schema = {"allOf": [schema, operation.only]}
    media = {"schema": schema, "example": operation.asks}
    return {
        "required": operation.body_policy is not Body.OPTIONAL,
        "content": dict.fromkeys(media_types, media),
    }


def _success(operation: Operation) -> dict[str, Any]:
    content: dict[str, Schema] = dict(operation.content)
    if operation.reply is not None:
        schema: Schema = {"$ref": REF + operation.reply.__name__}
        if operation.other_reply is not None:
            schema = {"anyOf": [schema, {"$ref": REF + operation.other_reply.__name__}]}
        content["application/json"] = {
            "schema": schema,
            "example": operation.example,
        }
    described: dict[str, Any] = {"description": operation.summary}
    if content:
        described["content"] = content
    if operation.frames:
        described["x-events"] = {
            event: {"$ref": REF + kind.__name__} for event, kind in operation.frames.items()
        }
    return described


def _refusals(operation: Operation, responses: dict[str, Any]) -> dict[str, Any]:
    """References to the replies that refuse; those that no operation has had yet are added."""
    described = {}
    for status, kinds in refusals.by_status(errors_of(operation)).items():
        name = "Or".join(kind.__name__ for kind in kinds)
        if name not in responses:
            responses[name] = refusals.response(kinds)
        described[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return described


def errors_of(operation: Operation) -> list[type[LogqueueError]]:
    """All that an operation can be refused with: what follows from its kind, and its own."""
    kinds: list[type[LogqueueError]] = [InvalidRequest, Unauthorized, Throttled, Internal]
    if operation.scope != NO_SCOPE:
        kinds.append(Forbidden)
    if operation.body_policy is not Body.IGNORED:
        kinds += [PayloadTooLarge, UnsupportedMediaType]
    if operation.serving:
        kinds += [NotReady, NotWriter, Fenced, ReplicaUnavailable, ShuttingDown]
    if operation.command is not None and not operation.frames:
        kinds += STORING
    return [*kinds, *operation.errors]
