"""The head of one HTTP/1.1 request: bytes to method, target, headers, and how the body is framed.

Owns: the grammar of a request head (RFC 9112), which forms are refused. Must not know: routes,
connections, what a body says. Whatever two parsers might read in two ways is refused, so no
proxy in front of the server can be made to see other requests than the server does.
"""

from __future__ import annotations

import re
from typing import Final

from logqueue.errors import InvalidRequest

HEAD_BYTES_MAX: Final = 64 << 10
HEADERS_MAX: Final = 256
CHUNKED: Final = -1

Headers = list[tuple[bytes, bytes]]

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/(1\.[01])\r\n")
_FIELDS: Final = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_BEGUN: Final = re.compile(_TOKEN + rb"(?: (?:[\x21-\x7e]+(?: (.*))?)?)?", re.DOTALL)
_VERSIONS: Final = (b"HTTP/1.1\r", b"HTTP/1.0\r")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]+)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_SINGLE: Final = frozenset(
    (
        b"host", b"content-length", b"transfer-encoding", b"authorization", b"origin",
        b"sec-fetch-site",
    )
)  # fmt: skip


class RequestHead:
    """A request head that is understood.

    Attributes:
        method: The method as sent; methods are case-sensitive.
        path, query: Of the target, as sent; the target itself where it is not a path.
        headers: All headers in order, names in lower case.
        fields: The same by name; of repeated ones the last.
        host: Whom the request is for: the target's authority, else the `Host` header. None only
            for HTTP/1.0.
        is_http_11: False for HTTP/1.0.
        keep_alive: Whether the connection may serve another request.
        body_bytes: Length of the body, `CHUNKED` when only its framing will tell.
        is_welcome: Host and origin were checked already.
        expects_continue: The client waits for `100 Continue` before it sends the body.
    """

    __slots__ = (
        "body_bytes", "expects_continue", "fields", "headers", "host", "is_http_11",
        "is_welcome", "keep_alive", "method", "path", "query",
    )  # fmt: skip

    def __init__(self, method: str, target: bytes, is_http_11: bool, headers: Headers) -> None:
        """Interpret a head whose grammar is checked already.

        Raises:
            InvalidRequest: Its parts contradict each other, or the target has no known form.
        """
        self.method = method
        self.headers = headers
        self.is_http_11 = is_http_11
        self.is_welcome = False
        fields = self.fields = dict(headers)
        if len(fields) != len(headers):
            _require_single(headers)
        self.host = fields.get(b"host")
        if target[:1] == b"/":
            self.path, _, self.query = target.partition(b"?")
        else:
            self._read_other_target(target)
        if self.host is None and is_http_11:
            raise InvalidRequest("an HTTP/1.1 request needs a `host` header")
        self.keep_alive = is_http_11
        connection = fields.get(b"connection")
        if connection is not None and self.keep_alive:
            self.keep_alive = not self.says(b"connection", b"close")
        self.body_bytes = self._framing()
        self.expects_continue = (
            is_http_11
            and self.body_bytes != 0
            and b"expect" in fields
            and fields[b"expect"].lower() == b"100-continue"
        )

    def says(self, name: bytes, token: bytes) -> bool:
        """Whether a header of comma-separated tokens has this (lower-case) one."""
        return any(
            token == part.strip(b" \t").lower()
            for header, value in self.headers
            if header == name
            for part in value.split(b",")
        )

    def _read_other_target(self, target: bytes) -> None:
        self.path, self.query = target, b""
        if self.method == "CONNECT" or target == b"*":
            return
        found = _ABSOLUTE.fullmatch(target)
        if found is None:
            raise InvalidRequest("the request target must be a path that begins with '/'")
        self.host = found[1]
        self.path, _, self.query = (found[2] or b"/").partition(b"?")
        self.path = self.path or b"/"

    def _framing(self) -> int:
        fields = self.fields
        length = fields.get(b"content-length")
        coding = fields.get(b"transfer-encoding")
        if coding is not None:
            if length is not None:
                raise InvalidRequest(
                    "a request has `content-length` or `transfer-encoding`, not both"
                )
            if coding.lower() != b"chunked" or not self.is_http_11:
                raise InvalidRequest(
                    "the only `transfer-encoding` supported is chunked, in HTTP/1.1"
                )
            return CHUNKED
        if length is None:
            return 0
        # Other scripts' digits are not ASCII; 20 digits hold any possible length.
        if not length.isdigit():
            raise InvalidRequest("`content-length` must be a non-negative integer")
        length = length.lstrip(b"0") or b"0"
        return int(length[:20]) if len(length) <= 20 else 10**20


def _require_single(headers: Headers) -> None:
    seen = set()
    for name, _ in headers:
        if name in _SINGLE and name in seen:
            raise InvalidRequest(f"the header `{name.decode()}` occurs more than once")
        seen.add(name)


def parse_head(text: bytes) -> RequestHead:
    """Parse a whole request head, up to and including the blank line.

    Raises:
        InvalidRequest: This is not the head of an HTTP/1.0 or HTTP/1.1 request.
    """
    line = _LINE.match(text)
    if line is None:
        raise InvalidRequest("malformed HTTP/1.1 request line: send METHOD /path HTTP/1.1")
    begin = line.end()
    if _FIELDS.fullmatch(text, begin) is None:
        raise InvalidRequest(
            "malformed header: send name: value lines that end with CRLF, without control "
            "characters, folding or blanks before the colon"
        )
    headers: Headers = []
    if len(text) - begin > 2:
        for header in text[begin:-4].split(b"\r\n"):
            name, _, value = header.partition(b":")
            headers.append((name.lower(), value.strip(b" \t")))
        if len(headers) > HEADERS_MAX:
            raise InvalidRequest(f"the request has over {HEADERS_MAX} headers")
    method, target, version = line.groups()
    return RequestHead(method.decode("ascii"), target, version == b"1.1", headers)


def assemble_head(
    method: bytes, target: bytes, host: bytes | None, headers: Headers
) -> RequestHead:
    """The head of a request whose parts came apart, as in HTTP/2: by the same grammar.

    Args:
        method: The method.
        target: The path, with its query.
        host: Whom the request is for.
        headers: All other headers, names in lower case.

    Raises:
        InvalidRequest: No head of HTTP/1.1 could say so.
    """
    if host is not None:
        headers = [(b"host", host), *((n, v) for n, v in headers if n != b"host")]
    if len(headers) > HEADERS_MAX:
        raise InvalidRequest(f"the request has over {HEADERS_MAX} headers")
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if any(b"\n" in line[:-2] for line in lines):
        raise InvalidRequest("malformed header: send values without control characters")
    return parse_head(b"".join(lines) + b"\r\n")


def require_beginning(data: bytes) -> None:
    """Check the first bytes of a head that is not whole yet.

    Raises:
        InvalidRequest: No request begins so.
    """
    if b"\r\n" in data:
        is_possible = _LINE.match(data) is not None
    else:
        beginning = _BEGUN.fullmatch(data)
        version = b"" if beginning is None else beginning[1] or b""
        is_possible = beginning is not None and any(v.startswith(version) for v in _VERSIONS)
    if not is_possible:
        raise InvalidRequest("malformed HTTP/1.1 request line: send METHOD /path HTTP/1.1")
