"""Pages of names: sizes, opaque cursors, and the walk over an ordered map.

Owns: what topic and router lists have in common. Must not know: what is listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from sortedcontainers import SortedDict

from logqueue.api import replies
from logqueue.errors import InvalidRequest

PAGE_DEFAULT = 100
PAGE_MAX = 1000


class HasPrefixes(Protocol):
    """A key that may be limited to names with one of some prefixes; none means every name."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes."""
        ...


def names_from(
    known: SortedDict[str, Any], prefix: str, after: str, key: HasPrefixes | None = None
) -> Iterator[str]:
    """Names with a prefix that a key allows, behind a position, ascending.

    Names that the key does not allow cost nothing, however many there are.
    """
    allowed = key.prefixes if key is not None and key.prefixes else ("",)
    # Where one prefix begins with another, the shorter covers both.
    covered = [one for one in allowed if not any(one != o and one.startswith(o) for o in allowed)]
    for one in sorted({*covered}):
        if one.startswith(prefix):
            yield from _names_with(known, one, after)
        elif prefix.startswith(one):
            yield from _names_with(known, prefix, after)


def _names_with(known: SortedDict[str, Any], prefix: str, after: str) -> Iterator[str]:
    for name in known.irange(max(after, prefix), inclusive=(after < prefix, True)):
        if not name.startswith(prefix):
            return
        yield name


def page_size(given: str | None) -> int:
    """The `page_size` parameter: 100 unless a non-negative integer; 1 to 1000."""
    if given is None or not (given.isascii() and given.isdigit()):
        return PAGE_DEFAULT
    return min(max(int(given[:20]), 1), PAGE_MAX)


def write_cursor(name: str) -> str:
    """A position in a list: URL-safe, without padding, opaque to clients."""
    return base64.urlsafe_b64encode(replies.encode({"after": name})).rstrip(b"=").decode()


def read_cursor(given: str | None) -> str:
    """The name a cursor points behind; "" for the first page.

    Raises:
        InvalidRequest: It is not a cursor of ours.
    """
    if not given:
        return ""
    # A blank is what form decoding makes of a "+" of standard base64.
    text = given.replace(" ", "+").replace("+", "-").replace("/", "_").rstrip("=")
    try:
        padded = (text + "=" * (-len(text) % 4)).encode("ascii")
        decoded = msgspec.json.decode(
            base64.b64decode(padded, altchars=b"-_", validate=True), type=dict[str, Any]
        )
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        raise InvalidRequest("`cursor` is not one that this server gave out") from None
    after = decoded.get("after", "")
    return after if isinstance(after, str) else ""
