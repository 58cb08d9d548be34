"""The `logqueue` command: parse, call, print.

Owns: arguments and exit statuses. Must not know: how anything is done.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from logqueue import __version__

LOG_FORMATS = ("text", "json")

_EXIT_STATUSES = """\
exit status:
  0  stopped in order
  1  failure; the message says which
  2  a flag or LOGQUEUE_ variable is wrong
  3  another server has the data directory
  4  the log is damaged; the message names file and offset
  5  the port can not be bound
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    return _serve(arguments)


def _parser() -> argparse.ArgumentParser:
    from logqueue.server.settings import OPTIONS

    parser = argparse.ArgumentParser(
        prog="logqueue",
        description="A durable log and lease-queue server that fits on one machine.",
        epilog="example: logqueue serve --port 4000 --data-dir ./logqueue-data",
    )
    parser.add_argument("--version", action="version", version=f"logqueue {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run a server",
        description="Run a server until SIGTERM or SIGINT. Each flag has a LOGQUEUE_ variable of "
        "the same name; flags win.",
        epilog=_EXIT_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option in OPTIONS:
        switch = option.metavar is None
        serve.add_argument(
            option.flag,
            help=f"{option.purpose} [{option.variable}]",
            **({"action": "store_const", "const": True} if switch else {"metavar": option.metavar}),
        )
    serve.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        help="how log lines are written to stderr [LOGQUEUE_LOG_FORMAT]",
    )
    serve.add_argument(
        "--set-damage-aside",
        action="store_true",
        help="on a damaged log: move what is behind the damage out of the way and go on without "
        "it, reporting what is lost",
    )
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    from logqueue.server.settings import OPTIONS, Settings, SettingsError

    log_format = arguments.log_format or os.environ.get("LOGQUEUE_LOG_FORMAT") or "text"
    if log_format not in LOG_FORMATS:
        print(
            f"logqueue serve: LOGQUEUE_LOG_FORMAT is {log_format!r}; it must be text or json",
            file=sys.stderr,
        )
        return 2
    _set_up_logging(log_format)
    flags = {option.name: getattr(arguments, option.name) for option in OPTIONS}
    try:
        settings = Settings.load(
            {name: value for name, value in flags.items() if value is not None}, os.environ
        )
    except SettingsError as error:
        print(f"logqueue serve: {error}", file=sys.stderr)
        return 2
    from logqueue.server.serve import serve

    return serve(settings, set_damage_aside=arguments.set_damage_aside)


class _JsonLines(logging.Formatter):
    """One JSON object per log line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _set_up_logging(kind: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonLines()
        if kind == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
