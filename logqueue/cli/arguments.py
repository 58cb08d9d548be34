"""What the parsers of all commands are made of.

Owns: how a command is declared, the flags that many commands share, and texts turned into values.
Must not know: what any command does. Nothing heavy is imported here: `--help` must be quick.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from logqueue.errors import quoted

Run = Callable[[argparse.Namespace], int]
"""Does what a command is for; returns the exit status."""

HELP_WIDTH = 96

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
UNIT_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}


class Commands:
    """Takes in commands, one after the other."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(
            dest="command", metavar="COMMAND", parser_class=argparse.ArgumentParser
        )

    def add(
        self,
        name: str,
        run: Run,
        what: str,
        *,
        more: str = "",
        examples: Sequence[str] = (),
        epilog: str | None = None,
    ) -> argparse.ArgumentParser:
        """Declare a command.

        Args:
            run: What it calls.
            what: One line, in lower case and without a full stop.
            more: What else its help should say.
            examples: Whole command lines.
            epilog: In place of the examples.

        Returns:
            The parser, for the command's own arguments.
        """
        text = f"{what[0].upper()}{what[1:]}." + (f" {more}" if more else "")
        shown = "examples:\n" + "\n".join(f"  {example}" for example in examples)
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=what,
            description=textwrap.fill(text, HELP_WIDTH),
            epilog=shown if epilog is None else epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run, parser=parser)
        return parser

    def add_calling(
        self, name: str, run: Run, what: str, *, more: str = "", examples: Sequence[str]
    ) -> argparse.ArgumentParser:
        """Declare a command that calls a server; it has `--url`, `--token` and `--json`."""
        parser = self.add(name, run, what, more=more, examples=examples)
        add_address(parser)
        add_retrying(parser)
        add_json(parser)
        return parser


# -- shared flags --------------------------------------------------------------------------------


class Flags(Protocol):
    """A parser, or a group of one."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """See argparse."""
        ...


def add_address(parser: Flags, *, default: str | None = argparse.SUPPRESS) -> None:
    """Where the server is, and the key: before the command or after it.

    Args:
        default: None in the parser of the whole command line. A command's own parser sets nothing
            when the flag is not given, so that it does not hide one before the command.
    """
    parser.add_argument(
        "--url",
        default=default,
        help="URL of the server; of a writer and its standbys, all of them with commas "
        "(default: LOGQUEUE_URL, else http://127.0.0.1:4000)",
    )
    parser.add_argument("--token", metavar="KEY", default=default, help="API key [LOGQUEUE_TOKEN]")


def add_retrying(parser: Flags) -> None:
    """How patient calls are."""
    parser.add_argument(
        "--retry-for",
        type=duration_s,
        metavar="TIME",
        help="how long to retry while no server answers (default: 30s; 3s in a terminal)",
    )
    parser.add_argument(
        "--call-timeout",
        type=duration_s,
        metavar="TIME",
        help="how long one reply may take (default: 10s)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for programs."""
    parser.add_argument(
        "--json", action="store_true", help="JSON on stdout: one object, or one per line"
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Consent given in advance."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def add_node(parser: argparse.ArgumentParser) -> None:
    """Who holds leases."""
    parser.add_argument(
        "--node", help="name of the lease holder (default: cli@ and the name of this machine)"
    )


# -- texts as values -----------------------------------------------------------------------------


def duration_ms(text: str) -> int:
    """Milliseconds from `500ms`, `30s`, `5m`, `2h`, `1d`, or a number of seconds.

    Raises:
        argparse.ArgumentTypeError: The text has none of these forms.
    """
    match = DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"invalid duration {quoted(text)}: use 500ms, 30s, 5m, 2h, 1d or a number of seconds"
        )
    return round(float(match[1]) * UNIT_MS[match[2] or "s"])


def duration_s(text: str) -> float:
    """Seconds, from the same texts as `duration_ms`."""
    return duration_ms(text) / 1000


def natural(text: str) -> int:
    """A whole number from 0.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a non-negative integer, not {quoted(text)}")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if natural(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def fields(texts: Sequence[str]) -> dict[str, Any]:
    """Fields from `NAME=VALUE` texts; a value is JSON if it can be, else text.

    Raises:
        ValueError: One has no `=`, or is NaN or infinite.
    """
    from logqueue.client.calls import refuse_non_numbers

    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ValueError(f"invalid field '{text}': use FIELD=VALUE")
        try:
            found[name] = json.loads(value, parse_constant=_refuse)
        except json.JSONDecodeError:
            found[name] = value
        refuse_non_numbers(found[name], name)
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON: use a number or null")
