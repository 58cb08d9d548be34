"""The command line of the benchmarks: which rows, how long, table or JSON.

Exit status 0 when every row could be measured, whether or not its target was reached; 1 when a
measurement failed, or when a comparison with an older version found a row that is clearly slower.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import compare
from bench.appends import append_1, append_100, append_pipelined
from bench.backlog import backlog_1, backlog_100
from bench.beside import read_append
from bench.claims import claim_cost
from bench.cold import cold_backlog
from bench.consuming import worker_idle, worker_noop
from bench.cycle import full_cycle, singles
from bench.deletes import delete_tag
from bench.firing import schedules
from bench.live import live_feed
from bench.load import LoadFailed
from bench.machine import describe
from bench.orders import group_memory, noisy_tenant, ordered_claims
from bench.pipeline_commands import (
    pipeline_audit,
    pipeline_jobs,
    pipeline_jobs_spark,
    pipeline_report,
    pipeline_single_jobs,
)
from bench.progress import Progress
from bench.reads import diff_1000, diff_head
from bench.replica import replica_modes, replica_restore
from bench.report import for_machine, render
from bench.room import room
from bench.rows import FULL, PAIRED, QUICK, Row
from bench.sending import client_append
from bench.session import Session
from bench.spark_jobs import spark_audit, spark_lifecycle, spark_reports
from bench.spark_reads import (
    spark_append_p99,
    spark_live,
    spark_parquet,
    spark_read,
    spark_write,
)
from bench.spread import router_hop, topics_10000
from bench.sqs import sqs_loop
from bench.stalls import tidy_stall
from bench.starting import help_time, import_time
from bench.streams import work_latency, work_throughput
from bench.triggers import TRIGGERS, stalls
from bench.watching import watch_crowd, watch_fanout, watch_hop, watch_idle, watch_latency
from bench.writer import lone_writer, raw_device
from logqueue.demo.server import ServerFailed
from logqueue.pipeline.errors import PipelineError

MEASUREMENTS: dict[str, Callable[[Session], list[Row]]] = {
    "append-100": append_100,
    "append-1": append_1,
    "append-pipelined": append_pipelined,
    "cycle": full_cycle,
    "singles": singles,
    "lone-writer": lone_writer,
    "work-latency": work_latency,
    "work-throughput": work_throughput,
    "backlog-100": backlog_100,
    "backlog-1": backlog_1,
    "backlog-cold": cold_backlog,
    "claim-cost": claim_cost,
    "order-claims": ordered_claims,
    "order-memory": group_memory,
    "order-noisy": noisy_tenant,
    "delete-tag": delete_tag,
    "tidy-stall": tidy_stall,
    "stalls": stalls,
    "diff-1000": diff_1000,
    "diff-head": diff_head,
    "watch-hop": watch_hop,
    "watch-latency": watch_latency,
    "watch-crowd": watch_crowd,
    "room": room,
    "watch-fanout": watch_fanout,
    "watch-idle": watch_idle,
    "live-feed": live_feed,
    "schedules": schedules,
    "router-hop": router_hop,
    "topics-10000": topics_10000,
    "client-append": client_append,
    "worker-noop": worker_noop,
    "worker-idle": worker_idle,
    "replica": replica_modes,
    "replica-restore": replica_restore,
    "import-time": import_time,
    "help-time": help_time,
    "read-append": read_append,
    "sqs-loop": sqs_loop,
    "spark-read": spark_read,
    "spark-parquet": spark_parquet,
    "spark-live": spark_live,
    "spark-write": spark_write,
    "spark-lifecycle": spark_lifecycle,
    "spark-reports": spark_reports,
    "spark-audit": spark_audit,
    "pipeline-audit": pipeline_audit,
    "pipeline-report": pipeline_report,
    "pipeline-jobs": pipeline_jobs,
    "pipeline-jobs-spark": pipeline_jobs_spark,
    "pipeline-single-jobs": pipeline_single_jobs,
    "spark-append-p99": spark_append_p99,
}


COMPARED = (
    "append-1",
    "append-pipelined",
    "singles",
    "cycle",
    "append-100",
    "lone-writer",
    "work-latency",
    "work-throughput",
    "claim-cost",
    "diff-1000",
    "diff-head",
    "watch-latency",
    "watch-fanout",
)
"""What is compared unless something is chosen."""

SERVER_ONLY = (
    *COMPARED,
    "backlog-100",
    "backlog-1",
    "backlog-cold",
    "delete-tag",
    "watch-idle",
    "live-feed",
    "read-append",
    "router-hop",
    "topics-10000",
)
"""What measures nothing but the server, so that another version of it can be put in its place."""


def main() -> int:
    """Measure, then report."""
    options = _read_options()
    # The servers of the run and their data go with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: sys.exit(128 + caught))
    return _compare(options) if options.compare else _run(options)


def _run(options: argparse.Namespace) -> int:
    scale = QUICK if options.quick else FULL
    machine = describe()
    if options.stall_jobs:
        scale = replace(scale, stall_jobs=options.stall_jobs)
    names = options.only or [*MEASUREMENTS]
    with Progress(sys.stderr, len(names)) as progress:
        session = Session(scale, options.dir, progress)
        session.shared["stall-triggers"] = options.stall_triggers or [*TRIGGERS]
        rows: list[Row] = []
        try:
            for name in names:
                progress.begin(f"{name} ({scale.repeats} times)")
                rows += _measure(name, MEASUREMENTS[name], session)
                progress.end()
            if not any(row.name == "raw-p50" for row in rows):
                session.tell("raw device")
                rows += _measure("raw-device", raw_device, session)
        finally:
            session.close()
    if options.json:
        sys.stdout.write(for_machine(rows, scale, machine).decode() + "\n")
    else:
        render(rows, scale, machine, sys.stdout)
    return 1 if any(row.failure for row in rows) else 0


def _compare(options: argparse.Namespace) -> int:
    scale = QUICK if options.quick else PAIRED
    names = options.only or COMPARED
    tolerance = options.tolerance / 100
    with Progress(sys.stderr, len(names) * options.rounds) as progress:
        session = Session(scale, options.dir, progress)
        by_name: dict[str, compare.Figure] = {}
        is_cut_short = True
        try:
            old = compare.code_of(options.compare, session.directory / "old")
            chosen = [(name, MEASUREMENTS[name]) for name in names]
            compare.compare(chosen, old, options.rounds, session, progress, by_name)
            is_cut_short = False
        except (LoadFailed, ServerFailed, OSError) as failure:
            session.tell(f"comparison failed: {failure}")
        except SystemExit:
            session.tell("comparison stopped: what follows is what had been measured")
        finally:
            session.close()
    figures = [*by_name.values()]
    about = {"scale": scale.name, "old": options.compare, "pairs": options.rounds, **describe()}
    if options.json:
        sys.stdout.write(compare.for_machine(figures, tolerance, about).decode() + "\n")
    else:
        compare.render(figures, tolerance, about, sys.stdout)
    slower = compare.slower(figures, tolerance)
    if slower:
        sys.stderr.write(f"slower than {options.compare}: {', '.join(slower)}\n")
    return 1 if slower or is_cut_short else 0


def _measure(name: str, measure: Callable[[Session], list[Row]], session: Session) -> list[Row]:
    try:
        return measure(session)
    except (LoadFailed, ServerFailed, PipelineError, OSError) as failure:
        session.tell(f"  {name} failed: {failure}")
        return [Row(name, name, "", failure=str(failure) or repr(failure))]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measures the server against its targets."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(MEASUREMENTS),
        metavar="NAME",
        help=f"only these measurements: {', '.join(MEASUREMENTS)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny counts: shows that it runs, judges nothing"
    )
    parser.add_argument(
        "--stall-jobs",
        type=int,
        metavar="N",
        help="what stands for a million in the rows of `stalls`",
    )
    parser.add_argument(
        "--stall-triggers",
        nargs="+",
        choices=list(TRIGGERS),
        metavar="TRIGGER",
        help=f"only these triggers of `stalls`: {', '.join(TRIGGERS)}",
    )
    parser.add_argument(
        "--compare",
        metavar="OLD",
        help="measure an older server beside this one, in turns: a git revision or a folder "
        f"(default: {' '.join(COMPARED)})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=10,
        metavar="N",
        help="pairs per measurement with --compare (default: 10)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="with --compare, what does not count as slower or faster (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("bench-results"),
        help="data lies below this directory during the run; choose the device with it "
        "(default: bench-results)",
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be at least 1")
    if options.compare and not {*(options.only or ())} <= {*SERVER_ONLY}:
        parser.error(
            f"--compare needs rows of the server alone: choose from {', '.join(SERVER_ONLY)}"
        )
    return options


if __name__ == "__main__":
    sys.exit(main())
