"""Requests that no schema describes, against every route: refused as documented, or harmless.

Whatever comes, the reply is one that the OpenAPI document has for the route, in the envelope.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import msgspec
import pytest

from logqueue.api.openapi.document import path_of
from logqueue.api.operations import OPERATIONS, Kind, Operation
from tests.http.api import JSON, Api
from tests.http.described import PATH, Judge, resolved
from tests.http.expect import Json, content_of, headers_of, ok, plain_ok, status_of
from tests.http.process import ServerProcess
from tests.http.rawhttp import RawReply, head

DEEP = 100_000


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of its own, which must outlive all this."""
    directory = tmp_path_factory.mktemp("besieged") / "data"
    process = ServerProcess(directory, settings={"MAX_BODY_BYTES": "1000000"}).start()
    with Api(process.base_url) as api:
        ok(api.put("transcode", type="queue"), 201)
        yield process
        plain_ok(api.send("GET", "/v0/health"))
    assert process.running, process.log()
    assert "Traceback" not in process.log()
    process.stop()


@pytest.fixture(scope="module")
def api(besieged: ServerProcess) -> Iterator[Api]:
    """A client of it."""
    with Api(besieged.base_url) as client:
        yield client


@pytest.fixture(scope="module")
def document(api: Api) -> Json:
    """What it says about itself."""
    return plain_ok(api.send("GET", PATH))


@pytest.fixture(scope="module")
def judge(document: Json) -> Judge:
    """Strict judgement by it."""
    return Judge(document)


def require_documented(
    document: Json, judge: Judge, row: Operation, reply: httpx.Response | RawReply
) -> None:
    """The status is one of the route, and a refusal is one of that status."""
    status, content = status_of(reply), content_of(reply)
    told = document["paths"][path_of(row.pattern)][row.method.lower()]["responses"]
    assert str(status) in told, (status, content[:300])
    assert status < 500, content[:300]
    if status >= 400:
        assert headers_of(reply)["content-type"] == "application/json"
        body = msgspec.json.decode(content)
        judge.require("ErrorReply", body)
        judge.require("ErrorBody", body["error"])
        media = resolved(document, told[str(status)]["$ref"])["content"]["application/json"]
        members = media["schema"]["allOf"][1]["properties"]["error"]["properties"]
        assert body["error"]["code"] in members["code"]["enum"]


# -- bodies --------------------------------------------------------------------------------------

MEMBERS = b'"node":"w","max":1,"seqs":[],"records":[{"data":1}],"match":"x","source":"a","dest":"b"'

BODIES: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b" \n\t\r",
    "no-json": b"records=1",
    "cut-off": b'{"records":[{"data":',
    "two-documents": b"{}{}",
    "array": b"[]",
    "text": b'"x"',
    "null": b"null",
    "number": b"1e400",
    "nan": b'{"max":NaN,"lease_ms":Infinity}',
    "byte-order-mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"node":"w"}'.encode("utf-16"),
    "invalid-utf-8": b'{"node":"\xff\xfe","records":[{"data":"\xc3\x28"}]}',
    "overlong-utf-8": b'{"node":"\xc0\x80"}',
    "surrogate-bytes": b'{"node":"\xed\xa0\x80","records":[{"data":"\xed\xa0\x80"}]}',
    "lone-surrogate": b'{"node":"\\ud800","records":[{"data":"\\ud800","tag":"\\ud800"}]}',
    "nul-byte": b'{"node":"a\x00b"}',
    "escaped-nul": b'{"node":"a\\u0000b","seqs":[],"records":[{"data":"\\u0000","tag":"\\u0000"}]}',
    "nul-behind": b"{" + MEMBERS + b"}\x00",
    "duplicates": b"{" + MEMBERS + b"," + MEMBERS + b"}",
    "many-duplicates": b"{" + b'"node":"w",' * 10_000 + MEMBERS + b"}",
    "many-unknown": b"{" + b"".join(b'"u%d":0,' % n for n in range(10_000)) + MEMBERS + b"}",
    "huge-integer": b'{"max":%s,"from_seq":1%s,"lease_ms":9%s}' % ((b"9" * 5000,) * 3),
    "huge-exponent": b'{"max":1e999999999,"from_seq":1e999999999,"records":[{"data":1e999999999}]}',
    "tiny-exponent": b'{"lease_ms":1e-999999999,"records":[{"data":1e-999999999}]}',
    "2^64": b'{"node":"w","seqs":[18446744073709551616],"lease_ms":18446744073709551616,'
    b'"before_seq":18446744073709551616,"from_seq":18446744073709551616}',
    "deep-arrays": b"[" * DEEP,
    "deep-closed-arrays": b"[" * DEEP + b"]" * DEEP,
    "deep-objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep-unknown": b'{"u":' + b"[" * DEEP + b"]" * DEEP + b"," + MEMBERS + b"}",
    "deep-data": b'{"records":[{"data":' + b"[" * DEEP + b"]" * DEEP + b"}]}",
    "deep-spaced-data": b'{"records": [{"data":' + b"[ " * DEEP + b"]" * DEEP + b"}]}",
    "deep-meta": b'{"records":[{"data":1,"meta":' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}]}",
    "deep-match": b'{"match":'
    + b"[" * DEEP
    + b"]" * DEEP
    + b',"filter":[[[]]],"source":"a","dest":"b"}',
    "long-text": b'{"node":"%s","seqs":[1],"match":"%s"}' % (b"n" * 300_000, b"m" * 300_000),
    "too-large": b'{"node":"' + b"n" * 1_000_000 + b'"}',
}


def short(row: Operation) -> str:
    """A row's name, for test ids."""
    return row.name


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.body is not None], ids=short)
@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies(document: Json, judge: Judge, api: Api, row: Operation, name: str) -> None:
    reply = api.send(row.method, concrete(row, "transcode"), BODIES[name], JSON)
    require_documented(document, judge, row, reply)


ENDING = [row for row in OPERATIONS if row.kind is not Kind.EVENTS]
"""No request for the live feed is refused for what it says, and its reply has no end."""


@pytest.mark.parametrize("row", [row for row in ENDING if row.body is None], ids=short)
def test_bodies_where_none_belong(document: Json, judge: Judge, api: Api, row: Operation) -> None:
    for body in (b"{", b"\xff", BODIES["too-large"]):
        reply = api.send(row.method, concrete(row, "absent"), body, JSON)
        require_documented(document, judge, row, reply)


CONTENT_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/xml",
    "application/",
    "json",
    "*/*",
    "application/octet-stream, application/json",
    "",
)


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.body is not None], ids=short)
def test_other_content_types(document: Json, judge: Judge, api: Api, row: Operation) -> None:
    for content_type in CONTENT_TYPES:
        headers = {"content-type": content_type}
        reply = api.send(row.method, concrete(row, "transcode"), b'{"node":"w"}', headers)
        assert reply.status_code == 415, content_type
        require_documented(document, judge, row, reply)


# -- names and parameters ------------------------------------------------------------------------

SEGMENTS = {
    "nul": "%00",
    "nul-inside": "a%00b",
    "line-break": "a%0Ab",
    "slash": "a%2Fb",
    "dots": "%2E%2E",
    "up": "..%2F..%2Fetc%2Fpasswd",
    "long": "n" * 256,
    "very-long": "n" * 20_000,
    "umlaut": "%C3%A4",
    "percent": "%2541",
    "half-escape": "%4",
    "no-escape": "%zz",
    "star": "*",
    "emoji": "%F0%9F%92%A9",
}
NAMED = [row for row in OPERATIONS if "*" in row.pattern]


@pytest.mark.parametrize("row", NAMED, ids=short)
@pytest.mark.parametrize("segment", SEGMENTS)
def test_hostile_names(
    document: Json, judge: Judge, api: Api, row: Operation, segment: str
) -> None:
    require_documented(document, judge, row, send_raw(api, row, SEGMENTS[segment]))


@pytest.mark.parametrize("row", NAMED, ids=short)
@pytest.mark.parametrize("segment", ["%FF", "%C3%28", "a%ED%A0%80"])
def test_names_that_are_no_text(
    document: Json, judge: Judge, api: Api, row: Operation, segment: str
) -> None:
    reply = send_raw(api, row, segment)
    assert reply.status == 400
    require_documented(document, judge, row, reply)


QUERIES = (
    "%FF=%FF",
    "page_size=%FF",
    "a=%C3%28",
    "=&&=&;",
    "?????",
    "page_size=" + "9" * 5000,
    "page_size=%00&cursor=%00&prefix=%00&node=%00",
    "cursor=" + "A" * 10_000,
    "cursor=" + "W1tb" * 2000,
    "node=" + "n" * 10_000,
    "&".join(f"q{n}=1" for n in range(3000)),
)


@pytest.mark.parametrize("row", ENDING, ids=short)
def test_hostile_queries(document: Json, judge: Judge, api: Api, row: Operation) -> None:
    for query in QUERIES:
        reply = send_raw(api, row, "absent", query)
        require_documented(document, judge, row, reply)


def concrete(row: Operation, name: str) -> str:
    """A row's path with a name in it."""
    return row.pattern.replace("*", name)


def send_raw(api: Api, row: Operation, name: str, query: str = "") -> RawReply:
    """A row's example with bytes in the path that other clients would not send."""
    target = concrete(row, name) + ("?" + query if query else "")
    body = msgspec.json.encode(row.asks) if row.body is not None else b""
    headers = {**JSON, "content-length": str(len(body))}
    return api.raw(head(row.method, target, headers) + body, method=row.method)
