"""Writes the blocking client from the awaiting one: `make generate`.

Owns: the substitutions that turn one into the other. Must not know: what a client does. Code is
turned by patterns, prose by whole sentences; a substitution that finds nothing is an error, so none
outlives what it was for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "logqueue/client/asynchronous.py"
TARGET = ROOT / "logqueue/client/blocking.py"

HEADER = """\
# Generated from asynchronous.py by tools/unasync.py. Do not edit: change that file, then run
# `make generate`.
"""

PROSE = [
    (
        '"""The client that awaits, and the source of the one that blocks.',
        '"""The client that blocks.',
    ),
    (
        """
`blocking.py` is generated from this file: run `make generate` after a change. What the two clients
do differently is in `sending.py`.
""",
        "",
    ),
    (
        """
        `records` may be an async iterable too; while one batch is on its way, the next one is
        gathered from it.
""",
        "",
    ),
    (
        """\
A client of one log, for one event loop. The methods are those of Client.

    Leave `watch` and `work` early through `contextlib.aclosing`, so that their connection ends
    there and then.
""",
        """\
A client of one log. Threads may share it.

    Each method is documented where the call it makes is described: `help(Client.claim)` shows it.
""",
    ),
]
"""Text of the awaiting client, and what the blocking one has in its place."""

CODE = [
    (r"^import asyncio\n", ""),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(closing|close|iter_raw|read)\b", r"\1"),
    (r"\bAsync(Client|BaseTransport|BatchSender)\b", r"\1"),
    (r"\basync_(chunks|events_of)\b", r"\1"),
    (r"\bAwaitedCalls\b", "BlockingCalls"),
    (r"\bAsyncGenerator\[(.+?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r" \| AsyncIterable\[Any\]", ""),
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    # A blocking generator can hand on all that an iterable brings.
    (r"\bfor (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
]
"""Patterns of the awaiting client's code, and what the blocking one has in their place."""


def blocking(source: str) -> str:
    """The blocking client that an awaiting one becomes.

    Raises:
        ValueError: A substitution finds nothing, or a word of asyncio is left.
    """
    for said, instead in PROSE:
        if said not in source:
            raise ValueError(f"the awaiting client no longer says: {said.strip()}")
        source = source.replace(said, instead)
    for pattern, instead in CODE:
        source, count = re.subn(pattern, instead, source, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"the awaiting client no longer has: {pattern}")
    source = _ruff(source, "check", "--fix-only", "--select", "I,F401")
    source = _ruff(source, "format")
    left = re.search(r".*(async|await|Async).*", source)
    if left:
        raise ValueError(f"left in the blocking client: {left[0].strip()}")
    return HEADER + source


def _ruff(source: str, *command: str) -> str:
    """Source text as ruff writes it, with the settings of the project."""
    # What was long in the source may fit into a line now, whatever its last comma says.
    short = "lint.isort.split-on-trailing-comma=false", "format.skip-magic-trailing-comma=true"
    options = ["--quiet", *(f"--config={setting}" for setting in short)]
    options += [f"--stdin-filename={TARGET}", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, *options],
        input=source,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def main() -> None:
    """Write the blocking client."""
    TARGET.write_text(blocking(SOURCE.read_text()))


if __name__ == "__main__":
    main()
