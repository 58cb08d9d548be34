"""Which names the server answers to, and which web pages may use it.

Owns: what `Host`, `Origin` and the `Sec-Fetch-` headers may say. Must not know: routes, keys.

A server without keys trusts every client that can reach it, so a browser on the same machine must
not lend that reach to web pages. A page can have its own name resolve to this machine (DNS
rebinding): such requests carry a foreign `Host`. It can also send forms and open WebSockets: those
carry a foreign `Origin`. With keys neither helps a page, since browsers never add an
`Authorization` header by themselves: nothing is checked then, unless the operator names the hosts
to allow.

Links to the pages for people work from everywhere, such as from a chat: those pages hold no data,
no other page can frame them, and opening one changes nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final

from logqueue.errors import Forbidden

_NAME: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.+)")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WAY_OUT: Final = "allow it with --allow-host (LOGQUEUE_ALLOW_HOST)"
_OWN_SITES: Final = (b"same-origin", b"none")

Name = tuple[str, int | None]


class HostPolicy:
    """What one server accepts."""

    def __init__(
        self, *, has_keys: bool, is_loopback: bool, bound: str, allowed: Iterable[str]
    ) -> None:
        """The policy of a server.

        Args:
            has_keys: Whether callers need keys.
            is_loopback: Whether only this machine can reach it.
            bound: The host it listens on.
            allowed: Further names, `name` or `name:port`; they switch the checks on everywhere.
        """
        names = [parse_name(name) for name in allowed]
        self._allowed = frozenset(name for name in names if name is not None)
        self._bound = parse_name(f"[{bound}]" if ":" in bound else bound)
        self._checks_host = bool(self._allowed) or (is_loopback and not has_keys)
        self._checks_origin = bool(self._allowed) or not has_keys
        # Whom the last request was for, and its name: nearly all are for the same.
        self._last: tuple[bytes | None, Name | None] = (None, None)

    def require(
        self, host: bytes | None, fields: Mapping[bytes, bytes], *, is_page: bool = False
    ) -> None:
        """Check a request.

        Args:
            host: Whom it is for; None when it does not say (HTTP/1.0).
            fields: Its headers, names in lower case.
            is_page: It reads a page that holds no data.

        Raises:
            Forbidden: It is for another host, or from a web page of another one.
        """
        known, name = self._last
        if host != known:
            name = None if host is None else parse_name(host.decode("latin-1"))
            if self._checks_host and host is not None and not self._is_own(name):
                raise Forbidden(
                    f"the host {_shown(host)} is not one of this server: connect to localhost, or "
                    + _WAY_OUT
                )
            self._last = (host, name)
        if not self._checks_origin:
            return
        origin = fields.get(b"origin")
        site = fields.get(b"sec-fetch-site")
        if origin is not None and not self._is_same(origin.decode("latin-1"), name):
            raise Forbidden(
                f"a web page of {_shown(origin)} may not use this server: {_WAY_OUT}, or set keys"
            )
        if origin is None and site is not None and site.lower() not in _OWN_SITES:
            if is_page and _is_link(fields):
                return
            raise Forbidden(
                "a web page of another site may not use this server: open the address itself, or "
                "send requests from a program"
            )

    def _is_own(self, name: Name | None) -> bool:
        return name is not None and (
            is_local_name(name[0])
            or (self._bound is not None and name[0] == self._bound[0])
            or self._is_allowed(name)
        )

    def _is_allowed(self, name: Name) -> bool:
        return name in self._allowed or (name[0], None) in self._allowed

    def _is_same(self, origin: str, name: Name | None) -> bool:
        """Whether a page's origin is the very host that its request is for, or allowed."""
        found = _ORIGIN.fullmatch(origin.lower())
        page = parse_name(found[2]) if found is not None else None
        if found is None or page is None:
            return False
        port = _DEFAULT_PORTS[found[1]]
        if self._is_allowed((page[0], page[1] or port)):
            return True
        return name is not None and (page[0], page[1] or port) == (name[0], name[1] or port)


def _is_link(fields: Mapping[bytes, bytes]) -> bool:
    """Whether a browser follows a link with it: the reply replaces the page that has the link."""
    return fields.get(b"sec-fetch-mode") == b"navigate" and (
        fields.get(b"sec-fetch-dest") == b"document"
    )


def parse_name(text: str) -> Name | None:
    """A host and its port, None where there is none; None for what is not one.

    Case and one dot at the end do not count.
    """
    found = _NAME.fullmatch(text.strip().lower())
    if found is None:
        return None
    host = found[1]
    if host.startswith("["):
        try:
            host = str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            return None
    else:
        host = host.removesuffix(".")
    return (host, int(found[2]) if found[2] else None) if host else None


def is_local_name(host: str) -> bool:
    """Whether a name always means this machine, whatever a name server says."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback if mapped is None else mapped.is_loopback


def _shown(text: bytes) -> str:
    """Text of a client, fit for a message."""
    return ascii(text[:80].decode("latin-1"))
