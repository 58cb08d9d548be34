"""Data as an attacker, or an accident, would have it: markup, marks that turn text around, limits.

Owns: the table of it, how it gets on a server. Must not know: pages.
"""

from __future__ import annotations

import json
from typing import Any

from tests.http.api import JSON, Api
from tests.http.expect import ok

OWNED = "document.title='owned'"
MARKUP = f'"\'><img src=x onerror="{OWNED}"><script>{OWNED}</script>'
TURNED = "\u202egnp.exe\u202c \u2067مرحبا\u2069"
"""Marks that turn the direction of text around; what follows must not be turned too."""
EMOJI = "👩‍👩‍👧‍👦🏳️‍🌈 zero\u200bwidth"
WIDE = "W" * 200
"""A word that does not break."""
LINES = "Traceback (most recent call last):\n" + '  File "a.py", line 1\n' * 60 + MARKUP

EXACT = "9007199254740993"
"""The first whole number that JavaScript cannot hold: 2 to the power of 53, plus 1."""
LONG_FRACTION = "0.1000000000000000055511151231257827"

VALUES: dict[str, str] = {
    "markup": json.dumps({MARKUP: MARKUP, "link": "javascript:document.title='owned'"}),
    "turned": json.dumps({"file": TURNED, TURNED: "after"}),
    "emoji": json.dumps({"emoji": EMOJI, "combining": "e" + "\u0301" * 200}),
    "null byte": '{"zero":"a\\u0000b","line":"\\u2028\\u2029\\r\\n\\t","escape":"\\u001b[31m"}',
    "prototype": '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},'
    '"toString":1,"hasOwnProperty":null,"":"","length":-1}',
    "numbers": f'{{"id":{EXACT},"minus":-{EXACT},"fraction":{LONG_FRACTION},"huge":1e300}}',
    "number": EXACT,
    "large text": json.dumps({"text": "x" * 1_000_000, "after": "end"}),
    "large markup": json.dumps(MARKUP * 10_000),
    "wide": json.dumps({WIDE: WIDE}),
    "deep": "[" * 400 + "1" + "]" * 400,
    "many": json.dumps(list(range(20_000))),
    "text": json.dumps("just text, no object"),
    "empty text": '""',
    "null": "null",
    "false": "false",
    "empty": "{}",
}
"""Data of jobs, as JSON text, by what is wrong with it."""

LONG_NAME = "q." + "n" * 253
"""As long as a name may be."""
NODE = (MARKUP + EMOJI)[:60]
TAG = MARKUP + WIDE[:100]
KEY = MARKUP + TURNED


def record(data: str, **members: Any) -> str:
    """A record with data that is JSON text already."""
    rest = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items())
    return f'{{"data":{data}{rest}}}'


def append(api: Api, topic: str, *records: str) -> list[int]:
    """Append records that are JSON text; returns their seqs."""
    body = f'{{"records":[{",".join(records)}]}}'.encode()
    seqs = ok(api.send("POST", f"/v0/topics/{topic}", body, JSON))["seqs"]
    assert isinstance(seqs, list)
    return seqs
