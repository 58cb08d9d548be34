"""Writes what is made of the table of operations: `make generate`.

Owns: the endpoints of the clients, and the tables of docs/protocol.md. A test fails where one is
out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from logqueue.api.openapi.document import path_of
from logqueue.api.operations import OPERATIONS, Body, Operation
from logqueue.errors import NotAQueue
from logqueue.model.scopes import Scope
from tools import shapes

ROOT = shapes.ROOT
ENDPOINTS = "logqueue/client/endpoints.py"
CALLERS = ("client", "worker", "pipeline")
PROTOCOL = "docs/protocol.md"
LINE_CHARS = 118


def endpoints() -> str:
    """The operations that some module names, as clients call them."""
    files = [file for room in CALLERS for file in (ROOT / "logqueue" / room).rglob("*.py")]
    text = "".join(file.read_text("utf-8") for file in files if file != ROOT / ENDPOINTS)
    called = [row for row in OPERATIONS if re.search(rf"\b{row.name.upper()}\b", text)]
    kinds = sorted({row.reply.__name__ for row in called if row.reply is not None})
    lines = [
        '"""The operations of the server, as calls name them.',
        "",
        "Written by `make generate` from logqueue/api/operations: change the row there.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from logqueue.client.calls import Endpoint",
        "from logqueue.shapes import (",
        *(f"    {kind}," for kind in kinds),
        ")",
        "",
    ]
    for row in called:
        reply = row.reply.__name__ if row.reply is not None else "bytes"
        lines.append(f'{row.name.upper()} = Endpoint("{row.method}", "{row.pattern}", {reply})')
    return "\n".join(lines) + "\n"


def path(row: Operation) -> str:
    """The path of an operation, as the pages write it."""
    text = re.sub(r"\{(\w+)\}", r":\1", path_of(row.pattern))
    is_of_queues = row.group in ("queues", "jobs") and NotAQueue in row.errors
    return text.replace(":topic", ":queue") if is_of_queues else text


def access(row: Operation) -> str:
    """What a key needs, in words."""
    scopes = [scope.name.lower() for scope in Scope if scope in row.scope and scope.name]
    return row.access or " and ".join(scopes) or "none"


POLICIES = {
    Body.IGNORED: ("", "fine", "not looked at: a body is ignored"),
    Body.OPTIONAL: ("optional", "means `{}`", "JSON or 415"),
    Body.NOT_EMPTY: ("not empty", "400", "JSON or 415"),
    Body.REQUIRED: ("required", "415 without a JSON content type, else 400", "JSON or 415"),
    Body.MERGE_PATCH: (
        "patch",
        "415 without a JSON content type, else 400",
        "JSON, `application/merge-patch+json` or 415",
    ),
}
"""What the tables call a policy, what becomes of an empty body, which content types are taken."""


def routes() -> Iterator[str]:
    """The table of routes."""
    yield "| Method | Path | Scope of the key | Body | What |"
    yield "|---|---|---|---|---|"
    for row in OPERATIONS:
        body, what = POLICIES[row.body_policy][0], f"[{row.summary}](#{anchor(row)})"
        yield f"| {row.method} | `{path(row)}` | {access(row)} | {body} | {what} |"


def bodies() -> Iterator[str]:
    """The table of body policies."""
    yield "| Body | When it is empty | Content type when it is not |"
    yield "|---|---|---|"
    for name, empty, content_type in POLICIES.values():
        yield f"| {name or 'none'} | {empty} | {content_type} |"


def anchor(row: Operation) -> str:
    """The heading that explains an operation, as links have it."""
    return row.doc or re.sub(r"[^a-z0-9 _-]", "", row.summary.lower()).replace(" ", "-")


def sections() -> Iterator[str]:
    """A section for each operation that no other heading explains."""
    for row in OPERATIONS:
        if not row.doc:
            yield from (f"### {row.summary}", "", f"`{row.method} {path(row)}`. {row.text}", "")
            for example in (row.asks, row.example):
                if example is not None:
                    yield from ("```json", wrapped(example), "```", "")
            codes = [f"{kind.status} `{kind.code}`" for kind in row.errors]
            if codes:
                yield from (f"Refused with {', '.join(codes)}.", "")


def wrapped(value: object) -> str:
    """JSON in lines of bounded length, broken behind members."""
    lines = [""]
    for part in re.split(r"(?<=,)(?=\")", json.dumps(value, separators=(",", ":"))):
        if lines[-1] and len(lines[-1]) + len(part) > LINE_CHARS:
            lines.append(" ")
        lines[-1] += part
    return "\n".join(lines)


PARTS = {"routes": routes, "bodies": bodies, "sections": sections}
"""What stands between `<!-- begin NAME -->` and `<!-- end NAME -->` of docs/protocol.md."""


def protocol(text: str) -> str:
    """The page with its tables written anew.

    Raises:
        ValueError: The page has no place for one.
    """
    for name, lines in PARTS.items():
        begin, end = f"<!-- begin {name}: make generate -->", f"<!-- end {name} -->"
        head, found, rest = text.partition(begin)
        _, also_found, tail = rest.partition(end)
        if not (found and also_found):
            raise ValueError(f"{PROTOCOL} has no {begin} and {end}")
        text = "\n".join([head + begin, "", *lines(), "", end + tail])
    return text


def contents() -> dict[Path, str]:
    """What each file should hold."""
    page = ROOT / PROTOCOL
    return {
        shapes.PACKAGE: shapes.package(),
        ROOT / ENDPOINTS: endpoints(),
        page: protocol(page.read_text("utf-8")),
    }


def main() -> None:
    """Write all files that are out of date."""
    for file, text in contents().items():
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
