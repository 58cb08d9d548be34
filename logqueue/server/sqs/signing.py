"""Signature Version 4 of AWS: whether a request was signed with the secret of a key.

Owns: the Authorization header, the canonical request, the clock skew allowed. Must not know:
actions, what a key may do. All of the request counts as it came: nothing is normalized but what
the rules of AWS say.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from calendar import timegm
from collections.abc import Sequence
from time import strptime
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes

from logqueue.server.auth import Key, KeyRing, bearer
from logqueue.server.http.requests import HttpRequest
from logqueue.server.sqs.refusals import (
    BAD_SIGNATURE,
    INCOMPLETE_SIGNATURE,
    NO_TOKEN,
    UNKNOWN_TOKEN,
    SqsRefusal,
)

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SKEW_S: Final = 15 * 60
"""How far the clock of a client may be from that of the server."""
SERVICE: Final = "sqs"
REGION: Final = "us-east-1"
"""That of requests that are not signed: ARNs name one."""

_PARTS: Final = re.compile(r"\s*(Credential|SignedHeaders|Signature)\s*=\s*([^\s,]+)\s*", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_BLANKS: Final = re.compile(rb"[ \t]+")
_NEEDED: Final = ("host", "x-amz-date")


class _Signature(NamedTuple):
    """What an Authorization header says."""

    signed: Sequence[str]
    signature: str
    access_key_id: str
    date: str
    region: str
    service: str
    terminator: str


def region_of(request: HttpRequest) -> str:
    """The region that a request was signed for; any will do."""
    header = _header(request, b"authorization").decode("ascii", "replace")
    found = re.search(r"Credential=[^/,\s]+/[^/,\s]+/([a-z0-9-]{1,40})/", header, re.ASCII)
    return found[1] if found else REGION


def authenticate(request: HttpRequest, ring: KeyRing, now_ms: int) -> Key:
    """The key that a request was signed with; `Authorization: Bearer` with its secret will do, too.

    Args:
        request: With its body.
        ring: The keys of the server.
        now_ms: The clock, ms since the epoch.

    Raises:
        SqsRefusal: No key signed it, or not now.
    """
    header = _header(request, b"authorization")
    if not header:
        raise SqsRefusal(NO_TOKEN, "the request has no signature: send an Authorization header")
    secret = bearer(header)
    if secret is not None:
        key = ring.authenticate(secret)
        if key is None:
            raise SqsRefusal(UNKNOWN_TOKEN, "missing or unknown API key")
        return key
    signature = _read(header.decode("utf-8", "replace"))
    key = ring.of_access_key(signature.access_key_id)
    if key is None:
        raise SqsRefusal(
            UNKNOWN_TOKEN,
            "the access key id is not one of this server: `logqueue sqs-credentials` shows that "
            "of an API key",
        )
    moment = _header(request, b"x-amz-date").decode("ascii", "replace")
    _require_scope(signature, moment)
    wanted = _signed(request, signature, moment, key)
    if not hmac.compare_digest(wanted.encode(), signature.signature.encode()):
        raise SqsRefusal(
            BAD_SIGNATURE,
            "the signature does not match the request: check the secret access key, and that "
            "nothing between client and server changes headers or path",
        )
    # After the signature: only callers with a key learn how far their clock is off.
    _require_recent(moment, now_ms)
    return key


def _read(header: str) -> _Signature:
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM:
        raise SqsRefusal(
            INCOMPLETE_SIGNATURE, f"unsupported Authorization scheme: sign with {ALGORITHM}"
        )
    parts: dict[str, str] = {}
    for part in rest.split(","):
        found = _PARTS.fullmatch(part)
        if found is None or found[1] in parts:
            raise SqsRefusal(
                INCOMPLETE_SIGNATURE,
                "the Authorization header must have Credential, SignedHeaders and Signature, once "
                "each",
            )
        parts[found[1]] = found[2]
    scope = parts.get("Credential", "").split("/")
    if len(parts) != 3 or len(scope) != 5:
        raise SqsRefusal(
            INCOMPLETE_SIGNATURE,
            "the Authorization header must have Credential=ID/DATE/REGION/sqs/aws4_request, "
            "SignedHeaders and Signature",
        )
    signed = parts["SignedHeaders"].split(";")
    return _Signature(signed, parts["Signature"], *scope)


def _require_scope(signature: _Signature, moment: str) -> None:
    if not _DATE.fullmatch(moment):
        raise SqsRefusal(
            INCOMPLETE_SIGNATURE, "the request needs a header X-Amz-Date such as 20260131T235959Z"
        )
    for name in _NEEDED:
        if name not in signature.signed:
            raise SqsRefusal(BAD_SIGNATURE, f"the header {name} must be signed")
    wanted = (moment[:8], SERVICE, "aws4_request")
    if (signature.date, signature.service, signature.terminator) != wanted:
        raise SqsRefusal(
            BAD_SIGNATURE,
            f"the credential must be scoped to {'/'.join((moment[:8], 'REGION', *wanted[1:]))}",
        )


def _require_recent(moment: str, now_ms: int) -> None:
    try:
        at_s = timegm(strptime(moment, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise SqsRefusal(INCOMPLETE_SIGNATURE, "X-Amz-Date is not a date") from None
    if abs(at_s - now_ms / 1000) > SKEW_S:
        word = "expired" if at_s < now_ms / 1000 else "not yet current"
        raise SqsRefusal(
            BAD_SIGNATURE,
            f"signature {word}: X-Amz-Date is over {SKEW_S // 60} minutes from the server's clock",
        )


def _signed(request: HttpRequest, signature: _Signature, moment: str, key: Key) -> str:
    """The signature that the request should have."""
    canonical = _canonical(request, signature.signed)
    scope = f"{signature.date}/{signature.region}/{signature.service}/{signature.terminator}"
    digest = hashlib.sha256(canonical).hexdigest()
    text = f"{ALGORITHM}\n{moment}\n{scope}\n{digest}"
    signing = b"AWS4" + key.signing_secret.encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    return hmac.new(signing, text.encode(), "sha256").hexdigest()


def _canonical(request: HttpRequest, signed: Sequence[str]) -> bytes:
    path = quote_from_bytes(request.raw_path, safe="/-_.~").encode()
    query = b"&".join(sorted(_pairs(request.query_string)))
    lines = [request.method.encode(), path, query]
    for name in signed:
        wanted = name.encode("utf-8", "replace")
        values = [value for header, value in request.headers if header == wanted]
        lines.append(wanted + b":" + b",".join(_BLANKS.sub(b" ", v.strip()) for v in values))
    lines += [b"", ";".join(signed).encode("utf-8", "replace")]
    lines.append(hashlib.sha256(request.body).hexdigest().encode())
    return b"\n".join(lines)


def _pairs(query: bytes) -> list[bytes]:
    return [pair if b"=" in pair else pair + b"=" for pair in query.split(b"&") if pair]


def _header(request: HttpRequest, name: bytes) -> bytes:
    """The first header of a name; heads of these requests are never answered from memory."""
    for key, value in request.headers:
        if key == name:
            return value
    return b""
