"""Bodies of the routes of the job life cycle: framing, content type, order of checks."""

from __future__ import annotations

import json

import pytest

from tests.http.api import Api
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, ok, refused

BODIES: dict[str, Json] = {
    "reject": {"node": "w", "seqs": []},
    "purge": {"states": ["held"]},
    "release": {"seqs": []},
    "redrive": {},
}

ROWS: list[tuple[bytes | None, str | None, int, str]] = [
    (b"", None, 415, "unsupported_media_type"),
    (b"", "text/plain", 415, "unsupported_media_type"),
    (b"", "application/json", 400, "invalid_request"),
    (None, None, 415, "unsupported_media_type"),
    (None, "text/plain", 415, "unsupported_media_type"),
    (None, "application/merge-patch+json", 415, "unsupported_media_type"),
    (None, "application/json", 200, ""),
    (None, "Application/JSON; charset=utf-8", 200, ""),
    (b"{", "application/json", 400, "invalid_request"),
    (b"{", "text/plain", 415, "unsupported_media_type"),
    (b"[]", "application/json", 400, "invalid_request"),
    (b"null", "application/json", 400, "invalid_request"),
    (b"{}x", "application/json", 400, "invalid_request"),
    (b'{"x":"\xff"}', "application/json", 400, "invalid_request"),
    (b"[" * 100_000, "application/json", 400, "invalid_request"),
]


@pytest.mark.parametrize("verb", BODIES)
@pytest.mark.parametrize(("content", "content_type", "status", "code"), ROWS)
def test_bodies(
    api: Api,
    queue: str,
    verb: str,
    content: bytes | None,
    content_type: str | None,
    status: int,
    code: str,
) -> None:
    """415 before 400, as everywhere; None stands for a good body."""
    if content is None:
        content = json.dumps(BODIES[verb]).encode()
    headers = {} if content_type is None else {"content-type": content_type}
    reply = api.send("POST", f"/v0/topics/{queue}/{verb}", content, headers)
    if status == 200:
        ok(reply)
    else:
        refused(reply, status, code)


@pytest.mark.parametrize("verb", [*BODIES, "PATCH"])
def test_bodies_that_are_too_large(fresh_server: FreshServer, api_for: ApiFor, verb: str) -> None:
    """413 before 415 and 400."""
    api = api_for(fresh_server(MAX_BODY_BYTES="1000"))
    api.make_queue("q")
    method, path = (
        ("PATCH", "/v0/topics/q") if verb == "PATCH" else ("POST", f"/v0/topics/q/{verb}")
    )
    refused(api.send(method, path, b"x" * 1001), 413, "payload_too_large")


@pytest.mark.parametrize("verb", BODIES)
def test_unknown_members(api: Api, queue: str, verb: str) -> None:
    """Ignored, as everywhere."""
    ok(api.json("POST", f"/v0/topics/{queue}/{verb}", {**BODIES[verb], "x": {"y": None}}))


@pytest.mark.parametrize("state", ["absent", "log"])
@pytest.mark.parametrize("verb", ["reject", "purge", "release"])
def test_the_body_is_checked_first(api: Api, topic: str, verb: str, state: str) -> None:
    """400 before 404 and 409."""
    if state == "log":
        api.make_log(topic)
    refused(api.json("POST", f"/v0/topics/{topic}/{verb}", {}), 400, "invalid_request")
