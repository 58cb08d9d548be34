"""Signature Version 4 against the signer of Amazon's own client."""

from __future__ import annotations

import json
import time
from calendar import timegm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.cli.main import main
from logqueue.server.auth import KeyRing, parse_keys, signing_credentials
from logqueue.server.http.requests import HttpRequest
from logqueue.server.sqs.addresses import Addresses, queue_of_arn, queue_of_url
from logqueue.server.sqs.refusals import SqsRefusal
from logqueue.server.sqs.signing import authenticate, region_of

botocore_auth = pytest.importorskip("botocore.auth")
botocore_request = pytest.importorskip("botocore.awsrequest")
botocore_credentials = pytest.importorskip("botocore.credentials")

RING = parse_keys("first:read,second:rw:mine-,\u00fc")
BODY = b'{"QueueUrl":"x"}'


def signed(
    secret: str = "second", *, url: str = "http://host:4000/sqs/", service: str = "sqs"
) -> HttpRequest:
    """A request as botocore signs it now."""
    credentials = botocore_credentials.Credentials(*signing_credentials(secret), token="session")
    request = botocore_request.AWSRequest(
        method="POST",
        url=url,
        data=BODY,
        headers={"X-Amz-Target": "AmazonSQS.ListQueues", "X-Spaces": "  a   b "},
    )
    botocore_auth.SigV4Auth(credentials, service, "eu-west-1").add_auth(request)
    prepared = request.prepare()
    path, _, query = prepared.url.partition("//")[2].partition("/")[2].partition("?")
    headers = [(name.lower().encode(), _encoded(v)) for name, v in prepared.headers.items()]
    if not any(name == b"host" for name, _ in headers):
        headers.append((b"host", b"host:4000"))
    received = HttpRequest("POST", f"/{path}".encode(), query.encode(), headers, None)  # type: ignore[arg-type]
    received.body = BODY
    return received


def _encoded(value: Any) -> bytes:
    return value.strip() if isinstance(value, bytes) else str(value).strip().encode()


def now_ms() -> int:
    return int(time.time() * 1000)


def code_of(request: HttpRequest, at: int | None = None, ring: KeyRing = RING) -> str:
    with pytest.raises(SqsRefusal) as refused:
        authenticate(request, ring, now_ms() if at is None else at)
    return refused.value.kind.code


def changed(request: HttpRequest, name: bytes, value: bytes | None) -> HttpRequest:
    request.headers[:] = [header for header in request.headers if header[0] != name]
    if value is not None:
        request.headers.append((name, value))
    return request


@pytest.mark.parametrize("secret", ["first", "second", "\u00fc"])
@pytest.mark.parametrize(
    "url",
    [
        "http://host:4000/sqs/",
        "http://host:4000/sqs",
        "http://host:4000/",
        "http://host:4000/sqs/000000000000/a%20b?b=2&a=1&a=%2F",
    ],
)
def test_signatures_of_botocore(secret: str, url: str) -> None:
    request = signed(secret, url=url)
    key = authenticate(request, RING, now_ms())
    assert key is RING.authenticate(secret)
    assert region_of(request) == "eu-west-1"


def test_everything_that_is_signed_counts() -> None:
    request = signed()
    request.body += b" "
    assert code_of(request) == "SignatureDoesNotMatch"
    for name in (b"host", b"x-amz-target", b"x-amz-date", b"x-spaces", b"x-amz-security-token"):
        other = b"20300101T000000Z" if name == b"x-amz-date" else b"other"
        assert code_of(changed(signed(), name, other)) == "SignatureDoesNotMatch"
    request = signed()
    request.raw_path = b"/sqs/other"
    assert code_of(request) == "SignatureDoesNotMatch"
    request = signed()
    request.query_string = b"a=1"
    assert code_of(request) == "SignatureDoesNotMatch"
    assert code_of(signed(service="s3")) == "SignatureDoesNotMatch"


def test_the_clock() -> None:
    request = signed()
    moment = dict(request.headers)[b"x-amz-date"].decode()
    at = timegm(time.strptime(moment, "%Y%m%dT%H%M%SZ")) * 1000
    for skew_s in (-900, 0, 900):
        authenticate(request, RING, at + skew_s * 1000)
    for skew_s in (-901, 901):
        assert code_of(request, at + skew_s * 1000) == "SignatureDoesNotMatch"


def test_keys() -> None:
    assert code_of(signed("unknown")) == "InvalidClientTokenId"
    assert code_of(changed(signed(), b"authorization", None)) == "MissingAuthenticationToken"
    assert code_of(changed(signed(), b"authorization", b"Bearer x")) == "InvalidClientTokenId"
    by_bearer = changed(signed(), b"authorization", b"Bearer first")
    assert authenticate(by_bearer, RING, 0) is RING.authenticate("first")
    key = RING.keys[0]
    assert key.signing_secret not in repr(key) and "first" not in key.signing_secret


PIECES = (
    *" ,;=/",
    *("Credential=", "SignedHeaders=", "Signature=", "host", "x-amz-date", "\u00fc", "20261123"),
    *(RING.keys[0].access_key_id, "sqs", "aws4_request", "AWS4-HMAC-SHA256 "),
)


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_header_is_refused(parts: list[str]) -> None:
    request = changed(signed(), b"authorization", "".join(parts).encode())
    with pytest.raises(SqsRefusal):
        authenticate(request, RING, now_ms())


def test_a_signature_may_be_any_text() -> None:
    request = signed()
    header = dict(request.headers)[b"authorization"].rpartition(b"=")[0]
    other = changed(request, b"authorization", header + "=\u00fc".encode())
    assert code_of(other) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "header",
    [
        b"AWS4-HMAC-SHA256",
        b"AWS4-HMAC-SHA256 Credential=a/b/c/d/e",
        b"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=x",
        b"AWS4-HMAC-SHA256 Credential=a/b/c/d/e, Credential=a/b/c/d/e, Signature=x",
        b"AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=x, More=y",
        b"Basic eDp5",
        b"\xff\xfe",
    ],
)
def test_malformed_headers(header: bytes) -> None:
    assert code_of(changed(signed(), b"authorization", header)) == "IncompleteSignature"


def test_a_signature_must_cover_host_and_date() -> None:
    request = signed()
    header = dict(request.headers)[b"authorization"]
    for name in (b"host;", b"x-amz-date;"):
        less = changed(signed(), b"authorization", header.replace(name, b""))
        assert code_of(less) == "SignatureDoesNotMatch"
    assert code_of(changed(signed(), b"x-amz-date", b"now")) == "IncompleteSignature"


def test_the_command_line_shows_the_credentials_of_a_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOGQUEUE_TOKEN", "second")
    monkeypatch.setenv("LOGQUEUE_URL", "http://one:4000/,http://two:4000")
    assert main(["sqs-credentials"]) == 0
    identity, secret = signing_credentials("second")
    assert capsys.readouterr().out.splitlines() == [
        f"AWS_ACCESS_KEY_ID={identity}",
        f"AWS_SECRET_ACCESS_KEY={secret}",
        "AWS_ENDPOINT_URL_SQS=http://one:4000/sqs",
    ]
    assert main(["sqs-credentials", "--token", "first", "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["AWS_ACCESS_KEY_ID"] == signing_credentials("first")[0]
    )
    monkeypatch.delenv("LOGQUEUE_TOKEN")
    assert main(["sqs-credentials"]) == 2


def test_urls_and_arns_of_queues() -> None:
    request = signed()
    assert Addresses(request, None).url("q") == "http://host:4000/sqs/000000000000/q"
    assert Addresses(request, "https://a.example").url("q").startswith("https://a.example/sqs/")
    assert Addresses(request, None).arn("q") == "arn:aws:sqs:eu-west-1:000000000000:q"
    request.key = RING.authenticate("second")
    assert Addresses(request, None).arn("other").endswith(":<hidden>")
    assert queue_of_url("http://other/1/a%20b") == "a b"
    assert queue_of_arn("arn:aws-cn:sqs:cn-north-1:123456789012:q.fifo", "x") == "q.fifo"
