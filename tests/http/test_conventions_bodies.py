"""Bodies: content types, empty bodies, order of checks, hostile JSON, size limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.http import rawhttp
from tests.http.api import JSON, Api, numbered
from tests.http.expect import ok, plain_ok, refused, status_of
from tests.http.process import ServerProcess

BODIES = {
    "": b'{"records":[{"data":1}]}',
    "/diff": b"{}",
    "/delete": b'{"before_seq":0}',
    "/claim": b'{"node":"w"}',
    "/ack": b'{"node":"w","seqs":[]}',
    "/nack": b'{"node":"w","seqs":[]}',
    "/extend": b'{"node":"w","seqs":[],"lease_ms":1000}',
}
ROUTES = [("POST", sub) for sub in BODIES] + [("PUT", "")]


def good_body(method: str, sub: str) -> bytes:
    """A body that the route accepts on a queue."""
    return b'{"type":"queue","durability":"memory"}' if method == "PUT" else BODIES[sub]


@pytest.mark.parametrize(("method", "sub"), ROUTES)
@pytest.mark.parametrize(
    ("content_type", "accepted"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("application/json;charset=utf-8", True),  # case 8
        ("   application/json", True),
        ("Application/JSON", True),
        ("application/jsonx", True),
        (None, False),
        ("", False),
        ("text/plain", False),
        ("text/json", False),
        ("application/x-www-form-urlencoded", False),
        ("x-application/json", False),
        ("application/ json", False),
    ],
)
def test_content_types(
    api: Api, queue: str, method: str, sub: str, content_type: str | None, accepted: bool
) -> None:
    """Case 8: what starts with application/json passes, in any case of letters."""
    headers = {} if content_type is None else {"content-type": content_type}
    content = rawhttp.request(method, f"/v0/topics/{queue}{sub}", good_body(method, sub), headers)
    reply = api.raw(content)
    if accepted:
        ok(reply)
    else:
        refused(reply, 415, "unsupported_media_type", None)


@pytest.mark.parametrize(
    ("method", "sub", "content_type", "status", "code"),
    [
        ("PUT", "", None, 200, ""),  # case 10
        ("PUT", "", "text/plain", 200, ""),
        ("PUT", "", "application/json", 200, ""),
        ("POST", "/diff", None, 200, ""),  # case 10
        ("POST", "/diff", "text/plain", 200, ""),
        ("POST", "/diff", "application/json", 200, ""),
        ("POST", "/claim", None, 400, "invalid_request"),  # case 11
        ("POST", "/claim", "text/plain", 400, "invalid_request"),
        ("POST", "/claim", "application/json", 400, "invalid_request"),
        ("POST", "", None, 415, "unsupported_media_type"),  # case 9
        ("POST", "", "application/json", 400, "invalid_request"),  # case 9
        ("POST", "/delete", None, 415, "unsupported_media_type"),
        ("POST", "/delete", "application/json", 400, "invalid_request"),
        ("POST", "/ack", None, 415, "unsupported_media_type"),
        ("POST", "/ack", "application/json", 400, "invalid_request"),
        ("POST", "/nack", None, 415, "unsupported_media_type"),
        ("POST", "/nack", "application/json", 400, "invalid_request"),
        ("POST", "/extend", None, 415, "unsupported_media_type"),
        ("POST", "/extend", "application/json", 400, "invalid_request"),
    ],
)
@pytest.mark.parametrize("framing", ["none", "length", "chunked"])
def test_empty_bodies(
    api: Api,
    log: str,
    method: str,
    sub: str,
    content_type: str | None,
    framing: str,
    status: int,
    code: str,
) -> None:
    """Cases 9, 10, 11: an empty body, whichever way it is framed."""
    headers = {} if content_type is None else {"content-type": content_type}
    path = f"/v0/topics/{log}{sub}"
    if framing == "chunked":
        headers["transfer-encoding"] = "chunked"
        reply = api.raw(rawhttp.head(method, path, headers) + rawhttp.chunked([]))
    else:
        reply = api.raw(rawhttp.request(method, path, None if framing == "none" else b"", headers))
    if status == 200:
        ok(reply)
    else:
        refused(reply, status, code, None)


DEEP = 100_000


def with_member(good: bytes, member: bytes) -> bytes:
    """A body with one more member, in front of the others."""
    return b"{" + member + (b"," if len(good) > 2 else b"") + good[1:]


def broken_bodies(good: bytes) -> dict[str, bytes]:
    """Everything that is wrong with a body although the rest of it is right."""
    members = {
        "half an escape": b'"x":"\\u00"',
        "bad escape": b'"x":"\\q"',
        "bare key": b"x:1",
        "single quotes": b"'x':1",
        "comment": b'"x":1/* no */',
        "not a number": b'"x":NaN',
        "infinity": b'"x":-Infinity',
        "leading zero": b'"x":01',
        "plus sign": b'"x":+1',
        "bare fraction": b'"x":.5',
        "half an exponent": b'"x":1e',
        "bare word": b'"x":nul',
        "raw newline in a string": b'"x":"a\nb"',
        "bad utf-8": b'"x":"\xff"',
        "bad utf-8 in a key": b'"\xff":1',
        "overlong utf-8": b'"x":"\xc0\xaf"',
        "utf-8 surrogate": b'"x":"\xed\xa0\x80"',
        "missing colon": b'"x" 1',
        "missing value": b'"x":',
        "deep and unclosed": b'"x":' + b"[" * DEEP,
    }
    return {
        "unclosed": good[:-1],
        "cut": good[: len(good) // 2],
        "array": b"[]",
        "positional array": b'["w",[],1]',
        "array around": b"[" + good + b"]",
        "string": b'"w"',
        "number": b"1",
        "null": b"null",
        "true": b"true",
        "two documents": good + good,  # case 16
        "two documents with a blank": good + b" {}",  # case 16
        "trailing text": good + b"x",
        "trailing bracket": good + b"}",
        "trailing comma": good[:-1] + b",}",
        "nul byte behind": good + b"\x00",
        "nul byte before": b"\x00" + good,
        "byte order mark": b"\xef\xbb\xbf" + good,
        "utf-16": good.decode().encode("utf-16"),
        "utf-16 without mark": good.decode().encode("utf-16-le"),
        "utf-32": good.decode().encode("utf-32-le"),
        "deep arrays": b"[" * DEEP + b"]" * DEEP,
        "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        **{name: with_member(good, member) for name, member in members.items()},
    }


@pytest.mark.parametrize(("method", "sub"), ROUTES)
@pytest.mark.parametrize("name", broken_bodies(b"{}"))
def test_hostile_bodies(api: Api, queue: str, method: str, sub: str, name: str) -> None:
    """Case 16 and its relatives: 400, never 500, nothing happens."""
    content = broken_bodies(good_body(method, sub))[name]
    reply = api.send(method, f"/v0/topics/{queue}{sub}", content, JSON)
    refused(reply, 400, "invalid_request")
    assert api.facts(queue, "head_seq", "in_flight") == (0, 0)


@pytest.mark.parametrize(("method", "sub"), ROUTES)
@pytest.mark.parametrize(
    "value",
    [b"[" * DEEP + b"]" * DEEP, b"9" * 100_000, b"1e999999", b'"\\ud800"', b'{"a":1,"a":2}'],
)
def test_odd_values_of_unknown_fields(
    api: Api, queue: str, method: str, sub: str, value: bytes
) -> None:
    """Ignored, or refused as malformed; never a server error."""
    content = with_member(good_body(method, sub), b'"x":' + value)
    reply = api.send(method, f"/v0/topics/{queue}{sub}", content, JSON)
    if reply.status_code == 200:
        ok(reply)
    else:
        refused(reply, 400, "invalid_request")


@pytest.mark.parametrize(
    "content",
    [
        b'{"records":[{"data":' + b"[" * DEEP + b"]" * DEEP + b"}]}",
        b'{"records":[{"data":1,"meta":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"records":[{"data":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}]}",
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":1},]}',
        b'{"records":[{"data":nul}]}',
        b'{"records":[{"data":"\x01"}]}',
    ],
)
def test_hostile_payloads(api: Api, queue: str, content: bytes) -> None:
    """Payload bytes are checked like the rest, however deep they are."""
    refused(api.send("POST", f"/v0/topics/{queue}", content, JSON), 400, "invalid_request")
    assert api.facts(queue, "head_seq") == (0,)


def test_payloads_a_hundred_levels_deep_are_stored(api: Api, queue: str) -> None:
    """Nesting as real documents have it comes back as sent."""
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    api.append(queue, deep)
    assert api.claimed(queue)[0]["data"] == deep


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '{"\\ud800":1}',
        "1e999",
        "-1e999",
        "1" * 5000,
        "0." + "1" * 5000,
        "123456789012345678901234567890",
        '"\\u0000"',
        '{"a":1,"a":2}',
    ],
)
def test_odd_payloads_never_break_the_topic(api: Api, queue: str, text: str) -> None:
    """Refused with 400, or stored and handed out again as JSON that says the same."""
    content = b'{"records":[{"data":' + text.encode() + b"}]}"
    reply = api.send("POST", f"/v0/topics/{queue}", content, JSON)
    if status_of(reply) == 400:
        refused(reply, 400, "invalid_request")
        return
    ok(reply)
    claim = api.claim(queue)
    assert status_of(claim) == 200
    found = json.loads(claim.text, parse_int=str, parse_float=float)["claimed"][0]["data"]
    assert json.dumps(found) == json.dumps(json.loads(text, parse_int=str, parse_float=float))


@pytest.mark.parametrize("field", ["tag", "node"])
def test_lone_surrogates_in_text_fields_are_no_server_error(
    api: Api, queue: str, field: str
) -> None:
    """They have no UTF-8 form, so that no byte limit applies to them: 400."""
    content = b'{"records":[{"data":1,"%s":"\\ud800"}]}' % field.encode()
    refused(api.send("POST", f"/v0/topics/{queue}", content, JSON), 400, "invalid_request")


@pytest.mark.parametrize(
    ("sub", "content"),
    [
        ("/claim", b'{"node":"w","node":"w"}'),
        ("/claim", b'{"node":"w","max":1,"max":1}'),
        ("/ack", b'{"node":"w","seqs":[],"seqs":[]}'),
    ],
)
def test_a_field_given_twice(api: Api, queue: str, sub: str, content: bytes) -> None:
    """Refused, or the last one counts; never a server error."""
    reply = api.send("POST", f"/v0/topics/{queue}{sub}", content, JSON)
    assert reply.status_code in (200, 400)


@pytest.mark.parametrize(("method", "sub"), ROUTES)
def test_bad_json_as_plain_text(api: Api, queue: str, method: str, sub: str) -> None:
    """Case 7: the content type is looked at first."""
    reply = api.send(method, f"/v0/topics/{queue}{sub}", b"{", {"content-type": "text/plain"})
    refused(reply, 415, "unsupported_media_type", None)


def test_blanks_around_a_document_are_fine(api: Api, queue: str) -> None:
    """Blanks are JSON too, and they are not kept in payloads: replies and sizes are compact."""
    text = b' \r\n\t{ "records" : [ { "data" : { "a" : [ 1 , 2 ] ,\n"b" : " x " } } ] } \n'
    ok(api.send("POST", f"/v0/topics/{queue}", text, JSON))
    assert api.facts(queue, "bytes") == (len('{"a":[1,2],"b":" x "}'),)
    assert api.claimed(queue)[0]["data"] == {"a": [1, 2], "b": " x "}


# -- size limits ------------------------------------------------------------------------------

LIMIT = 2000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server that takes bodies of 2000 bytes."""
    directory = tmp_path_factory.mktemp("small") / "data"
    process = ServerProcess(directory, settings={"MAX_BODY_BYTES": str(LIMIT)}).start()
    with Api(process.base_url) as client:
        client.make_queue("q")
        yield client
    process.stop()


def padded(size: int) -> bytes:
    """A good write of exactly this many bytes."""
    frame = b'{"records":[{"data":""}]}'
    return frame[:21] + b"x" * (size - len(frame)) + frame[21:]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("size", "accepted"), [(LIMIT, True), (LIMIT + 1, False)])
def test_the_limit_is_inclusive(small: Api, framing: str, size: int, accepted: bool) -> None:
    """Exactly the limit passes, one byte more does not, in both framings."""
    content = padded(size)
    if framing == "chunked":
        headers = {**JSON, "transfer-encoding": "chunked"}
        parts = [content[index : index + 100] for index in range(0, size, 100)]
        sent = rawhttp.head("POST", "/v0/topics/q", headers) + rawhttp.chunked(parts)
    else:
        sent = rawhttp.request("POST", "/v0/topics/q", content, JSON)
    reply = small.raw(sent)
    if accepted:
        ok(reply)
    else:
        refused(reply, 413, "payload_too_large", None)


@pytest.mark.parametrize(("method", "sub"), ROUTES)
@pytest.mark.parametrize("headers", [JSON, {}, {"content-type": "text/plain"}])
def test_too_large_wins_over_the_content_type(
    small: Api, method: str, sub: str, headers: dict[str, str]
) -> None:
    """Case 6 on a small server: 413 before 415 and 400."""
    reply = small.raw(rawhttp.request(method, f"/v0/topics/q{sub}", b"x" * (LIMIT + 1), headers))
    refused(reply, 413, "payload_too_large", None)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v0/nosuch", 404, "not_found"),
        ("POST", "/v0/topics/q/", 404, "not_found"),
        ("PUT", "/v0/topics/q/claim", 405, "method_not_allowed"),
        ("POST", "/v0/topics", 405, "method_not_allowed"),
    ],
)
def test_the_route_is_looked_at_before_the_size(
    small: Api, method: str, path: str, status: int, code: str
) -> None:
    """404 and 405 win over 413."""
    reply = small.raw(rawhttp.request(method, path, b"x" * (LIMIT + 1), JSON))
    refused(reply, status, code, None)


@pytest.mark.parametrize("length", ["70000000", "99999999999999"])
def test_a_promised_length_over_the_limit_is_refused_unread(api: Api, length: str) -> None:
    """Case 6: 70 MiB with a wrong content type; no byte of it has to be sent."""
    headers = {"content-type": "text/plain", "content-length": length}
    reply = api.raw(rawhttp.head("POST", "/v0/topics/none", headers))
    refused(reply, 413, "payload_too_large", None)


def test_an_endless_chunked_body_is_cut(small: Api) -> None:
    """The count runs while reading: the answer comes before the body has ended."""
    headers = {**JSON, "transfer-encoding": "chunked"}
    with rawhttp.Connection(small.address) as connection:
        connection.send(rawhttp.head("POST", "/v0/topics/q", headers))
        connection.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        connection.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        connection.send(b"1\r\nx\r\n")
        refused(connection.read_reply(), 413, "payload_too_large", None)
    plain_ok(small.send("GET", "/v0/health"))


def test_large_but_allowed(api: Api, queue: str) -> None:
    """A body of some 20 MiB passes through the default limit of 64 MiB."""
    records = [{"data": "x" * 1_000_000} for _ in range(20)]
    assert ok(api.write(queue, records, query="?return_seqs=false"))["count"] == 20
    ok(api.write(queue, numbered(1)))
    ok(api.delete_topic(queue))
