"""`logqueue pipeline`: the data pipeline on Spark, as commands.

Owns: the group, its actions and their flags. Must not know: Spark, how any job works. Nothing heavy
is imported here: `--help` must be quick.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from logqueue.cli import exits
from logqueue.cli.arguments import HELP_WIDTH, Commands, Run, add_json, duration_s, positive
from logqueue.pipeline.simulation.changes import CHANGES

ENGINES = ("auto", "duckdb", "spark")
FORMATS_READ = ("parquet", "json", "csv")
FORMATS_WRITTEN = ("parquet", "csv", "json", "md", "html")

EXAMPLES = (
    "logqueue pipeline doctor",
    "logqueue pipeline archive --path logqueue-data --topics orders --to archive",
    "logqueue pipeline report --archive archive --to reports",
    "logqueue pipeline audit --path logqueue-data --to findings",
    'logqueue pipeline sql --archive archive "select topic, count(*) from records group by topic"',
)


class _Actions:
    """Takes in the actions of the group, one after the other."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(
        self, name: str, run: Run, what: str, *, more: str = "", examples: Sequence[str]
    ) -> argparse.ArgumentParser:
        """Declare an action; arguments as for a command."""
        text = f"{what[0].upper()}{what[1:]}." + (f" {more}" if more else "")
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=what,
            description=textwrap.fill(text, HELP_WIDTH),
            epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run)
        return parser


def add_to(commands: Commands) -> None:
    """Declare the command and its actions."""
    group = commands.add(
        "pipeline",
        _named_only,
        "archive, report on, audit and copy in bulk, with Spark",
        more="Each action starts a Spark of its own on this machine unless --master or --remote "
        "says where one is. Needs `pip install 'logqueue[spark]'` and Java 17 or newer; "
        "`logqueue pipeline doctor` says what is missing.",
        examples=EXAMPLES,
    )
    actions = _Actions(group)
    _add_archiving(actions)
    _add_reading(actions)
    _add_simulating(actions)
    _add_writing(actions)
    _add_sql(actions)
    _add_cluster(actions)


def _named_only(arguments: argparse.Namespace) -> int:
    """The group by itself; its parser asks for an action before this is called."""
    arguments.parser.print_help()
    return exits.USAGE


def _lazily(module: str, name: str) -> Run:
    """A function of a module that is imported when it is called."""

    def run(arguments: argparse.Namespace) -> int:
        import importlib

        work: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(f"logqueue.cli.{module}"), name
        )
        return work(arguments)

    return run


def _job(name: str) -> Run:
    return _lazily("pipeline_jobs", name)


# -- flags that many actions share ---------------------------------------------------------------


def _add_session(parser: argparse.ArgumentParser, *, any_engine: bool = False) -> None:
    """Where Spark runs; for some actions, which engine runs them."""
    if any_engine:
        parser.add_argument(
            "--engine",
            choices=ENGINES,
            default="auto",
            help="what runs it: duckdb, on this machine without Java, or spark (default: auto, "
            "duckdb unless the input is large or a Spark flag is given)",
        )
    spark = parser.add_argument_group("spark")
    where = spark.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server, sc://HOST:PORT")
    spark.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, NAME=VALUE; may be repeated",
    )
    add_json(parser)


def _add_key(parser: Any) -> None:
    """The key for a server."""
    parser.add_argument("--token", metavar="KEY", help="API key [LOGQUEUE_TOKEN]")
    parser.add_argument(
        "--token-file", metavar="FILE", help="file with the API key, readable wherever tasks run"
    )


def _add_input(
    parser: argparse.ArgumentParser, *, archive: bool = True, tables: bool = False
) -> None:
    """What is read: an archive, a data directory, or a server; or tables made of one."""
    source = parser.add_argument_group("input (one of them)").add_mutually_exclusive_group(
        required=True
    )
    if archive:
        source.add_argument(
            "--archive", metavar="DIR", help="archive written by `logqueue pipeline archive`"
        )
    source.add_argument(
        "--path",
        metavar="DIR",
        help="a data directory, its log archive, a backup of it, or the URL of a replica",
    )
    source.add_argument("--url", metavar="URL", help="a server")
    if tables:
        source.add_argument("--lifecycle", metavar="DIR", help="tables written by `lifecycle`")
    _add_key(parser)
    topics = parser.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="A,B", help="only these topics (default: all)")
    topics.add_argument(
        "--pattern",
        metavar="REGEX",
        help="only topics whose whole name matches this regular expression",
    )


def _add_output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--to", required=True, metavar="DIR", help=what)


# -- actions -------------------------------------------------------------------------------------


def _add_archiving(actions: _Actions) -> None:
    archive = actions.add(
        "archive",
        _job("archive"),
        "copy records and job events into Parquet files, each exactly once",
        more="It resumes where it stopped, also after a crash. One writer per archive at a time.",
        examples=(
            "logqueue pipeline archive --path logqueue-data --topics orders --to archive",
            "logqueue pipeline archive --url http://127.0.0.1:4000 --pattern 'mail.*' --to archive "
            "--every 1m",
        ),
    )
    _add_input(archive, archive=False)
    _add_output(archive, "the archive directory; created if missing")
    often = archive.add_mutually_exclusive_group()
    often.add_argument(
        "--once", action="store_true", help="exit when everything has been copied (the default)"
    )
    often.add_argument(
        "--every",
        type=duration_s,
        metavar="TIME",
        help="keep running and check for new records this often",
    )
    archive.add_argument(
        "--max-records", type=positive, metavar="N", help="maximum number of records per epoch"
    )
    archive.add_argument(
        "--variant",
        action="store_true",
        help="also write data as VARIANT: slower to write, faster to query",
    )
    archive.add_argument(
        "--fail-on-data-loss",
        choices=("true", "false"),
        nargs="?",
        const="true",
        default="true",
        help="false: continue without what the log has lost, with a warning (default: true)",
    )
    archive.add_argument(
        "--delta", action="store_true", help="also write Delta tables; needs 'logqueue[delta]'"
    )
    _add_session(archive)
    compact = actions.add(
        "compact",
        _job("compact"),
        "merge the small files of an archive",
        more="Readers see the old files or the new one, never both. It runs in this process, "
        "without Spark, unless --master, --remote or --conf is given.",
        examples=("logqueue pipeline compact --archive archive",),
    )
    compact.add_argument("--archive", required=True, metavar="DIR")
    _add_session(compact)


def _add_page(report: argparse.ArgumentParser) -> None:
    """How the page of a report is shown."""
    report.add_argument(
        "--zone",
        default="UTC",
        metavar="ZONE",
        help="time zone the page opens with, such as Europe/Berlin (default: UTC)",
    )
    report.add_argument(
        "--dashboard",
        metavar="URL",
        help="server whose dashboard the page's jobs link to (default: the one of --url)",
    )


def _add_reading(actions: _Actions) -> None:
    lifecycle = actions.add(
        "lifecycle",
        _job("lifecycle"),
        "write tables of jobs and attempts: worker, times, durations and outcomes",
        examples=(
            "logqueue pipeline lifecycle --archive archive --to tables",
            "logqueue pipeline lifecycle --path logqueue-data --topics thumbnails --to tables",
        ),
    )
    _add_input(lifecycle)
    lifecycle.add_argument(
        "--since",
        metavar="TIME",
        help="update from events since this time: 2026-03-01T00:00:00Z, or `last` for the last run",
    )
    lifecycle.add_argument("--end", metavar="TIME", help="ignore events after this time")
    _add_output(lifecycle, "where the tables are written")
    _add_session(lifecycle, any_engine=True)
    report = actions.add(
        "report",
        _job("report"),
        "report throughput, waiting times, failures, workers, backlog and capacity of queues",
        examples=(
            "logqueue pipeline report --archive archive --to reports",
            "logqueue pipeline report --path logqueue-data --name latency,failures --bucket 1h "
            "--sla wait=30s,e2e=5m --to reports --format csv,html",
        ),
    )
    _add_input(report, tables=True)
    report.add_argument(
        "--name", default="all", metavar="A,B", help="comma-separated report names (default: all)"
    )
    report.add_argument("--bucket", default="1m", metavar="TIME", help="width of a bucket of time")
    report.add_argument("--sla", metavar="RULE=TIME,..", help="limits: wait=30s,run=1m,e2e=5m")
    report.add_argument(
        "--format",
        default="parquet",
        metavar="A,B",
        help=f"of {', '.join(FORMATS_WRITTEN)} (default: parquet)",
    )
    _add_page(report)
    _add_output(report, "where the reports are written")
    _add_session(report, any_engine=True)
    audit = actions.add(
        "audit",
        _job("audit"),
        "check a log against the rules of the queue",
        more="Status 0: all rules hold. Status 3: findings, one row for each.",
        examples=(
            "logqueue pipeline audit --path logqueue-data --to findings",
            "logqueue pipeline audit --archive archive --against logqueue-data --to findings",
        ),
    )
    _add_input(audit)
    audit.add_argument(
        "--against",
        metavar="DIR",
        help="an archive or data directory that must have the same content",
    )
    audit.add_argument("--rules", metavar="A,B", help="only these rules (default: all)")
    _add_output(audit, "where the findings are written")
    _add_session(audit, any_engine=True)


def _add_simulating(actions: _Actions) -> None:
    simulate = actions.add(
        "simulate",
        _lazily("pipeline_simulation", "simulate"),
        "replay queues with other workers, load or limits",
        more="Arrivals, runs and workers are those of the log; what is given with --what-if is "
        "different. Each scenario is replayed several times: figures are medians, with the 10th "
        "and 90th percentile. A back-test shows how well the second half of the log is predicted "
        "from the first.",
        examples=(
            "logqueue pipeline simulate --path logqueue-data --what-if workers=x2 --to what-if",
            "logqueue pipeline simulate --archive archive --topics mail --what-if load=x2 "
            "--what-if load=x2,workers=+4 --to what-if",
        ),
    )
    simulate.epilog = (
        f"changes of a scenario:\n{textwrap.indent(CHANGES, '  ')}\n\n{simulate.epilog}"
    )
    _add_input(simulate, tables=True)
    simulate.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGES",
        help="a scenario, such as workers=x2,load=x1.5 (default: workers=x0.5 and workers=x2); "
        "may be repeated",
    )
    simulate.add_argument(
        "--seeds", type=positive, metavar="N", help="replays of each scenario (default: 5 to 20)"
    )
    simulate.add_argument("--bucket", default="1m", metavar="TIME", help="width of a time bucket")
    simulate.add_argument(
        "--format",
        default="html,parquet",
        metavar="A,B",
        help=f"of {', '.join(FORMATS_WRITTEN)} (default: html,parquet)",
    )
    _add_page(simulate)
    _add_output(simulate, "where the page and the tables are written")
    add_json(simulate)


def _add_writing(actions: _Actions) -> None:
    backfill = actions.add(
        "backfill",
        _job("backfill"),
        "write files into a topic, each row exactly once",
        more="To finish an interrupted run, repeat the command with the same --write-id.",
        examples=(
            "logqueue pipeline backfill --from orders.parquet --format parquet --to-topic orders "
            "--url http://127.0.0.1:4000 --write-id orders-2026-03",
        ),
    )
    backfill.add_argument("--from", dest="source", required=True, metavar="PATH")
    backfill.add_argument("--format", required=True, choices=FORMATS_READ)
    backfill.add_argument("--to-topic", required=True, metavar="TOPIC")
    backfill.add_argument(
        "--map", dest="map_sql", metavar="SQL", help="a query over the table `input`: data, tag, .."
    )
    backfill.add_argument(
        "--slices", type=positive, metavar="N", help="epochs to write it in (default: by size)"
    )
    backfill.add_argument(
        "--order-by",
        metavar="COLUMN",
        help="write rows in the order of this column (default: any order)",
    )
    redrive = actions.add(
        "redrive",
        _job("redrive"),
        "write selected dead letters to a topic again, each exactly once",
        examples=(
            "logqueue pipeline redrive --url http://127.0.0.1:4000 --dead-topic thumbnails.dead "
            "--where \"tag = 'cat'\" --write-id cats-1 --dry-run",
        ),
    )
    redrive.add_argument("--dead-topic", required=True, metavar="TOPIC")
    redrive.add_argument("--where", metavar="SQL", help="SQL condition on records (default: all)")
    redrive.add_argument(
        "--to-topic", metavar="TOPIC", help="target queue (default: the queue each came from)"
    )
    redrive.add_argument("--limit", type=positive, metavar="N", help="maximum number")
    redrive.add_argument("--dry-run", action="store_true", help="only count; write nothing")
    for parser in (backfill, redrive):
        parser.add_argument(
            "--url", help="URL of the server (default: LOGQUEUE_URL, else http://127.0.0.1:4000)"
        )
        _add_key(parser)
        parser.add_argument(
            "--write-id",
            required=True,
            metavar="ID",
            help="identifies this write; repeating it with the same id writes nothing twice",
        )
        _add_session(parser)


def _add_sql(actions: _Actions) -> None:
    sql = actions.add(
        "sql",
        _lazily("pipeline_sql", "sql"),
        "run a query over records, lease_events and tables made of them",
        more="Tables: records and lease_events, and with --tables those that `lifecycle` and "
        "`report` wrote.",
        examples=(
            "logqueue pipeline sql --archive archive "
            '"select topic, count(*) from records group by topic"',
            "logqueue pipeline sql --path logqueue-data --format csv "
            "\"select * from lease_events where event = 'dead_lettered'\"",
        ),
    )
    sql.add_argument("query", metavar="QUERY")
    _add_input(sql)
    sql.add_argument(
        "--tables",
        action="append",
        default=[],
        metavar="DIR",
        help="Parquet tables written by `lifecycle` or `report`; may be repeated",
    )
    sql.add_argument("--limit", type=positive, metavar="N", help="rows shown (default: 1000)")
    sql.add_argument("--format", choices=("table", "csv", "json"), help="default: table")
    _add_session(sql, any_engine=True)


def _add_cluster(actions: _Actions) -> None:
    pack = actions.add(
        "pack",
        _lazily("pipeline_cluster", "pack"),
        "write the logqueue package as a zip for the executors of a cluster",
        examples=("logqueue pipeline pack -o logqueue.zip",),
    )
    pack.add_argument("-o", "--output", default="logqueue.zip", metavar="FILE")
    add_json(pack)
    submit = actions.add(
        "submit",
        _lazily("pipeline_cluster", "submit"),
        "print, or run, the spark-submit command for a pipeline action on a cluster",
        examples=(
            "logqueue pipeline submit --master spark://host:7077 --py-files logqueue.zip -- "
            "report --archive /mnt/archive --to /mnt/reports",
        ),
    )
    submit.add_argument("--master", required=True, metavar="URL", help="the cluster's master")
    submit.add_argument(
        "--py-files",
        default="logqueue.zip",
        metavar="FILE",
        help="zip written by `pack` (default: logqueue.zip; created if it does not exist)",
    )
    submit.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, NAME=VALUE",
    )
    submit.add_argument("--run", dest="is_run", action="store_true", help="run it, too")
    submit.add_argument("words", nargs="+", metavar="ACTION ..", help="after --: the action to run")
    doctor = actions.add(
        "doctor",
        _lazily("pipeline_doctor", "doctor"),
        "check whether this machine can run the pipeline",
        examples=("logqueue pipeline doctor", "logqueue pipeline doctor --json"),
    )
    add_json(doctor)
