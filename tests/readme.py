"""The shell commands of README.md, as the tests read them.

Owns: finding shell blocks in Markdown and splitting them into commands. Runs nothing.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Block:
    """One shell block.

    Attributes:
        line: Where its first command stands in the page.
        text: Its commands.
    """

    line: int
    text: str

    def commands(self) -> list[str]:
        """Its commands, continued lines joined, comments and blank lines left out."""
        return [
            line.strip()
            for line in _joined(self.text).splitlines()
            if line.strip() and not line.lstrip().startswith("#")
        ]


def shell_blocks(markdown: str) -> list[Block]:
    """Every fenced block marked `sh`, in order."""
    return [
        Block(markdown.count("\n", 0, match.start()) + 2, match[1])
        for match in _BLOCK.finditer(markdown)
    ]


def program(command: str) -> list[str]:
    """The words of a command from its program on: assignments before it are left out."""
    parts = shlex.split(command)
    while parts and _ASSIGNMENT.match(parts[0]):
        parts.pop(0)
    return parts


def _joined(text: str) -> str:
    """Continued lines as one: after a backslash, or inside an open single quote."""
    joined: list[str] = []
    is_open = False
    for line in text.splitlines():
        if joined and (is_open or joined[-1].endswith("\\")):
            joined[-1] = joined[-1].removesuffix("\\") + " " + line.strip()
        else:
            joined.append(line)
        is_open = joined[-1].count("'") % 2 == 1
    return "\n".join(joined)
