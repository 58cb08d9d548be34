"""`logqueue serve` and `logqueue worker`: programs that run until a signal stops them.

Owns: their flags, their exit statuses, and how they log. Must not know: how anything is done.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_address, add_json, duration_s, natural, positive
from logqueue.cli.exits import CommandError, UsageError
from logqueue.errors import quoted

if TYPE_CHECKING:
    from logqueue.server.settings import Option

LOG_FORMATS = ("text", "json")

_SERVE_STATUSES = """\
examples:
  logqueue serve
  logqueue serve --port 4001 --data-dir /var/lib/logqueue --log-format json

exit status:
  0  stopped in order
  1  failure; the message says which
  2  a flag or LOGQUEUE_ variable is wrong
  3  another server has the data directory
  4  the log is damaged; the message names file and offset
  5  the port cannot be bound
  6  another server has taken over the log
  7  the replica cannot be used: it cannot be reached, or is of another history
"""


def add_to(commands: Commands) -> None:
    """Declare both commands."""
    _add_serve(commands)
    _add_worker(commands)


def _add_serve(commands: Commands) -> None:
    from logqueue.server.settings import OPTIONS

    serve = commands.add(
        "serve",
        _serve,
        "run a server",
        more="It runs until SIGTERM or SIGINT. Each flag has a LOGQUEUE_ variable of the same "
        "name; flags win.",
        epilog=_SERVE_STATUSES,
    )
    for option in OPTIONS:
        switch = option.metavar is None
        serve.add_argument(
            option.flag,
            help=f"{option.purpose}{_default(option)} [{option.variable}]",
            **({"action": "store_const", "const": True} if switch else {"metavar": option.metavar}),
        )
    _add_log_format(serve)
    serve.add_argument(
        "--set-damage-aside",
        action="store_true",
        help="on a damaged log: move what is behind the damage out of the way and go on without "
        "it, reporting what is lost",
    )


def _default(option: Option) -> str:
    """The default of a setting, for help; nothing where there is none or the text says it."""
    from logqueue.server.settings import Settings

    value = getattr(Settings(), option.name)
    if (
        option.is_duration
        or isinstance(value, bool)
        or not isinstance(value, int | float | str)
        or value == ""
    ):
        return ""
    return f" (default: {value})".replace("%", "%%")


def _add_log_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        help="how log lines are written to stderr [LOGQUEUE_LOG_FORMAT]",
    )


def _serve(arguments: argparse.Namespace) -> int:
    from logqueue.server.settings import OPTIONS, Settings, SettingsError

    _set_up_logging(arguments)
    flags = {option.name: getattr(arguments, option.name) for option in OPTIONS}
    try:
        settings = Settings.load(
            {name: value for name, value in flags.items() if value is not None}, os.environ
        )
    except SettingsError as error:
        raise UsageError(str(error)) from error
    from logqueue.server.serve import serve

    return serve(settings, set_damage_aside=arguments.set_damage_aside)


# -- worker --------------------------------------------------------------------------------------


def _add_worker(commands: Commands) -> None:
    worker = commands.add(
        "worker",
        _worker,
        "run the tasks and consumers of an app",
        more="It runs until SIGTERM or SIGINT: then it takes no more jobs, sees those that run to "
        "their end, and releases the rest. A second signal skips the wait, a third exits at once.",
        examples=(
            "logqueue worker shop.tasks:app",
            "logqueue worker shop.tasks:app -q thumbnails -c 4 --processes 2",
            "logqueue worker shop.tasks:app --reload",
            "logqueue worker shop.tasks:app --check",
        ),
    )
    add_address(worker)
    worker.add_argument("app", metavar="MODULE:APP", help="the app, as Python would import it")
    worker.add_argument(
        "-q", "--queue", action="append", dest="queues", help="only this queue; may be repeated"
    )
    worker.add_argument(
        "-c", "--concurrency", type=positive, metavar="N", help="handlers at once, per queue"
    )
    worker.add_argument(
        "--processes", type=positive, default=1, metavar="N", help="worker processes (default: 1)"
    )
    worker.add_argument(
        "--source",
        choices=("sse", "poll"),
        help="have jobs pushed (default), or claim them",
    )
    worker.add_argument(
        "--prefetch", type=int, metavar="N", help="jobs leased beyond those running (default: 0)"
    )
    for flag, what in (
        ("--grace", "how long running handlers may take after a signal (default: 25s)"),
        ("--lease", "lease time: how soon the jobs of a dead worker return (default: 30s)"),
        ("--max-lease", "longest time that a job's lease is renewed (default: 12h)"),
    ):
        worker.add_argument(flag, type=duration_s, metavar="TIME", help=what)
    worker.add_argument(
        "--metrics-port",
        type=natural,
        metavar="PORT",
        help="serve /metrics and /live there; further processes take the next free ports",
    )
    worker.add_argument(
        "--metrics-host", metavar="HOST", help="address for --metrics-port (default: 127.0.0.1)"
    )
    worker.add_argument("--once", action="store_true", help="exit when no job is left to claim")
    worker.add_argument(
        "--reload",
        action="store_true",
        help="restart when a Python file below this directory changes",
    )
    worker.add_argument(
        "--check",
        action="store_true",
        help="list what the app handles, and compare its declared queues with the server's; run "
        "nothing. Status 4 when a queue differs",
    )
    _add_log_format(worker)
    add_json(worker)


def _worker(arguments: argparse.Namespace) -> int:
    # The app makes its own connections; this is how it hears of the flags.
    for variable, value in (("LOGQUEUE_URL", arguments.url), ("LOGQUEUE_TOKEN", arguments.token)):
        if value is not None:
            os.environ[variable] = value
    from logqueue.worker import STOP_SIGNALS, AppNotFound, run_worker

    if arguments.check:
        return _check(arguments)
    _set_up_logging(arguments)
    # A line per request would drown what the worker says.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if arguments.reload:
        return _reload()
    names = (
        *("concurrency", "prefetch", "source", "grace", "lease", "max_lease"),
        *("metrics_port", "metrics_host"),
    )
    given = {name: getattr(arguments, name) for name in names}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        return run_worker(
            arguments.app,
            processes=arguments.processes,
            signals=STOP_SIGNALS,
            queues=arguments.queues,
            once=arguments.once,
            **options,
        )
    except AppNotFound as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check(arguments: argparse.Namespace) -> int:
    from logqueue.worker import AppNotFound, check, check_queues, load_app

    try:
        app = load_app(arguments.app)
    except AppNotFound as error:
        raise CommandError(str(error)) from error
    differs = check_queues(app) if app.declared or app.schedules else []
    if arguments.json:
        output.json_line(
            {
                "differs": differs,
                "handlers": [
                    {
                        "queue": handler.queue,
                        "name": handler.name,
                        "run_in": handler.run_in,
                        "ack_policy": handler.policy.value,
                        "concurrency": handler.concurrency,
                        "timeout_s": handler.timeout,
                    }
                    for handler in app.handlers.of_all()
                ],
            }
        )
    else:
        for line in check(app):
            output.line(line)
    if not app.handlers.queues():
        raise CommandError(f"{arguments.app} has no task and no consumer")
    for line in differs:
        output.say(f"logqueue worker: {output.printable(line)}")
    return exits.DIFFERS if differs else exits.OK


def _reload() -> int:
    from logqueue.worker import STOP_SIGNALS
    from logqueue.worker.reload import run_reloading

    without = [word for word in sys.argv[1:] if word != "--reload"]
    command = [sys.executable, "-m", "logqueue", *without]
    return run_reloading(command, [Path.cwd()], signals=STOP_SIGNALS)


# -- logging -------------------------------------------------------------------------------------


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


def _set_up_logging(arguments: argparse.Namespace) -> None:
    kind = arguments.log_format or os.environ.get("LOGQUEUE_LOG_FORMAT") or "text"
    if kind not in LOG_FORMATS:
        raise UsageError(f"LOGQUEUE_LOG_FORMAT is {quoted(kind)}; it must be text or json")
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonLines()
        if kind == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
