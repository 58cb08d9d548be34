"""`logqueue claim`, `ack`, `nack`, `reject`, `extend`, `jobs`, `job`, `workers`.

Owns: how jobs are named and shown. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, add_node, duration_ms, natural, positive
from logqueue.cli.connection import connect, node_of
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.job_changes import add_filter, filter_of
from logqueue.cli.output import TableColumn, number
from logqueue.errors import quoted

if TYPE_CHECKING:
    from logqueue.client import Client, Settled
    from logqueue.shapes import Job, JobEvent, JobView

WAIT_MS_MAX = 30_000
PAUSE_S = 0.1

_JOBS_HELP = "a seq, SEQ:LEASE_ID, or - for the JSON lines of `claim --json` on stdin"


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    _add_claim(commands)
    _add_settles(commands)
    _add_reads(commands)


def _add_claim(commands: Commands) -> None:
    claim = commands.add_calling(
        "claim",
        _claim,
        "lease jobs of a queue",
        more="Jobs not acked before the lease expires return to the queue.",
        examples=(
            "logqueue claim thumbnails --max 10 --lease 5m",
            "logqueue claim thumbnails --wait 30s --json > jobs && ... && "
            "logqueue ack thumbnails - < jobs",
        ),
    )
    claim.add_argument("queue")
    claim.add_argument("--max", type=positive, default=1, metavar="N", help="up to 1000 at once")
    claim.add_argument("--lease", type=duration_ms, metavar="TIME", help="for how long")
    claim.add_argument(
        "--wait", type=duration_ms, metavar="TIME", help="wait up to this long for jobs"
    )
    add_node(claim)


def _add_settles(commands: Commands) -> None:
    ack = commands.add_calling(
        "ack",
        _ack,
        "acknowledge jobs as done",
        examples=("logqueue ack thumbnails 17 18", "logqueue ack thumbnails - < claimed.jsonl"),
    )
    nack = commands.add_calling(
        "nack",
        _nack,
        "return jobs to the queue, to be delivered again",
        examples=(
            "logqueue nack thumbnails 17 --delay 5m --error 'no space left'",
            "logqueue nack thumbnails 17 --no-count",
        ),
    )
    reject = commands.add_calling(
        "reject",
        _reject,
        "fail jobs permanently: they become dead letters",
        examples=("logqueue reject thumbnails 17 --error 'no such image'",),
    )
    extend = commands.add_calling(
        "extend",
        _extend,
        "renew leases",
        examples=("logqueue extend thumbnails 17 --lease 10m",),
    )
    for parser in (ack, nack, reject, extend):
        parser.add_argument("queue")
        parser.add_argument("jobs", nargs="+", metavar="JOB", help=_JOBS_HELP)
        add_node(parser)
    nack.add_argument(
        "--delay", type=duration_ms, metavar="TIME", help="delay before the job can be claimed"
    )
    nack.add_argument("--no-count", action="store_true", help="do not count the delivery")
    for parser in (nack, reject):
        parser.add_argument("--error", metavar="TEXT", help="what went wrong; kept with the job")
    extend.add_argument("--lease", type=duration_ms, required=True, metavar="TIME")


def _add_reads(commands: Commands) -> None:
    jobs = commands.add_calling(
        "jobs",
        _jobs,
        "list the jobs of a queue, without leasing any",
        examples=(
            "logqueue jobs thumbnails --state held,delayed",
            "logqueue jobs thumbnails --tag 'night*' --json",
            "logqueue jobs thumbnails --text user17@example.com --min-deliveries 2",
            "logqueue jobs thumbnails --all --json > jobs.jsonl",
        ),
    )
    jobs.add_argument("queue")
    add_filter(jobs)
    jobs.add_argument("--after", type=natural, metavar="SEQ", help="only jobs after this seq")
    jobs.add_argument("--limit", "-n", type=positive, default=100, help="default: 100")
    jobs.add_argument("--all", action="store_true", help="all of them, whatever the limit")
    job = commands.add_calling(
        "job",
        _job,
        "show one job and what happened to it",
        examples=("logqueue job thumbnails 17",),
    )
    job.add_argument("queue")
    job.add_argument("seq", type=natural)
    groups = commands.add_calling(
        "groups",
        _groups,
        "list the groups of a queue: the most waiting jobs first, or the oldest",
        examples=("logqueue groups mail", "logqueue groups mail --order age --limit 5"),
    )
    groups.add_argument("queue")
    groups.add_argument("--order", choices=("backlog", "age"), default="backlog")
    groups.add_argument("--limit", "-n", type=positive, default=20, help="up to 1000 (default: 20)")
    workers = commands.add_calling(
        "workers",
        _workers,
        "list the workers of all queues, or of one",
        examples=(
            "logqueue workers",
            "logqueue workers thumbnails",
            "logqueue workers --node gpu-7 --jobs 100",
        ),
    )
    workers.add_argument("queue", nargs="?", help="only of this one")
    workers.add_argument("--node", help="only this worker, over all queues")
    workers.add_argument(
        "--jobs", type=natural, metavar="N", help="also list up to N jobs in hand of each worker"
    )


# -- leasing and settling ------------------------------------------------------------------------


def _claim(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        ends = time.monotonic() + (arguments.wait or 0) / 1000
        while True:
            left_ms = max(round((ends - time.monotonic()) * 1000), 0)
            claimed = client.claim(
                arguments.queue,
                max=min(arguments.max, 1000),
                lease_ms=arguments.lease,
                wait_ms=min(left_ms, WAIT_MS_MAX) or None,
            )
            if claimed.jobs or time.monotonic() >= ends:
                break
            time.sleep(PAUSE_S)  # a server may answer before its time, when it stops for instance
    if not claimed.jobs:
        why = f" ({claimed.reason.replace('_', ' ')})" if claimed.reason else ""
        raise NothingThere(f"{arguments.queue} has no job to claim now{why}")
    if arguments.json:
        for job in claimed.jobs:
            output.json_line(job)
        return exits.OK
    columns = (number("seq"), TableColumn("lease"), number("run"), TableColumn("until"))
    tag = TableColumn("tag", is_optional=True)
    output.table(
        (*columns, tag, TableColumn("data", is_long=True)),
        (
            (
                str(job.seq),
                job.lease_id,
                job.deliveries,
                output.when(job.deadline),
                job.tag,
                output.to_json(job.data),
            )
            for job in claimed.jobs
        ),
    )
    return exits.OK


def named_jobs(texts: Iterable[str], lines: Iterable[str]) -> list[Job | int]:
    """The jobs that arguments name.

    Args:
        texts: Seqs, SEQ:LEASE_ID, or `-` once.
        lines: The jobs that `-` reads: as claimed, or as in `texts`, one per line.

    Raises:
        UsageError: One names no job.
    """
    found: list[Job | int] = []
    for text in texts:
        if text == "-":
            found += [_named_job(line.strip()) for line in lines if not line.isspace()]
        else:
            found.append(_named_job(text))
    return found


def _named_job(text: str) -> Job | int:
    import msgspec

    from logqueue.client.calls import decode
    from logqueue.shapes import Job

    if text.startswith("{"):
        try:
            return decode(text, Job)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"invalid job: expected a line of `claim --json`, got {text[:80]} ({error})"
            ) from error
    seq, colon, lease_id = text.partition(":")
    if not (seq.isascii() and seq.isdigit()) or bool(colon) is not bool(lease_id):
        raise UsageError(f"invalid job {quoted(text[:80])}: use a seq, or SEQ:LEASE_ID")
    if not lease_id:
        return int(seq)
    return Job(seq=int(seq), lease_id=lease_id, deadline=0, ts=0, deliveries=0, data=None)


def _settled(arguments: argparse.Namespace, settled: Settled, done: str) -> int:
    missed = [*settled.skipped, *settled.unsure]
    if arguments.json:
        output.json_line(settled)
    else:
        output.say(f"{done} {output.count_of(len(settled.counted), 'job')} of {settled.queue}")
    if not missed:
        return exits.OK
    seqs = ", ".join(map(str, missed[:10])) + (", ..." if len(missed) > 10 else "")
    raise CommandError(
        f"not leased to {node_of(arguments)} (or not any longer): {seqs}; `logqueue job` shows "
        "the holder, --node acts for another holder"
    )


def _ack(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        jobs = named_jobs(arguments.jobs, sys.stdin)
        return _settled(arguments, client.ack(arguments.queue, jobs), "finished")


def _nack(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        settled = client.nack(
            arguments.queue,
            named_jobs(arguments.jobs, sys.stdin),
            delay_ms=arguments.delay,
            error=arguments.error,
            count=not arguments.no_count,
        )
    return _settled(arguments, settled, "gave back")


def _reject(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        jobs = named_jobs(arguments.jobs, sys.stdin)
        settled = client.reject(arguments.queue, jobs, error=arguments.error)
    return _settled(arguments, settled, "rejected")


def _extend(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        jobs = named_jobs(arguments.jobs, sys.stdin)
        extended = client.extend(arguments.queue, jobs, arguments.lease)
    if arguments.json:
        output.json_line(extended)
    else:
        output.say(f"extended {output.count_of(extended.extended, 'lease')} of {arguments.queue}")
    if extended.skipped:
        seqs = ", ".join(map(str, extended.skipped[:10]))
        raise CommandError(f"not leased to {node_of(arguments)} (or not any longer): {seqs}")
    return exits.OK


# -- reading -------------------------------------------------------------------------------------


def _jobs(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        listed = _listed(client, arguments)
        if arguments.json:
            return _print_lines(arguments, listed)
        found = [*listed]
    if not found:
        raise NothingThere(f"{arguments.queue} has no such jobs")
    columns = (
        number("seq"),
        TableColumn("state"),
        number("run", is_optional=True),
        TableColumn("age"),
        TableColumn("until", is_optional=True),
        TableColumn("holder", is_optional=True),
        TableColumn("tag", is_optional=True),
        TableColumn("key", is_optional=True),
        number("priority", is_optional=True),
        TableColumn("group", is_optional=True),
        TableColumn("last error", is_long=True, is_optional=True),
        TableColumn("data", is_long=True),
    )
    output.table(columns, _rows(found))
    if len(found) == arguments.limit and not arguments.all:
        output.say(f"perhaps there are more: --after {found[-1].seq}, or a higher --limit")
    return exits.OK


def _print_lines(arguments: argparse.Namespace, listed: Iterable[JobView]) -> int:
    """One JSON object per job, as they come: there may be more than fit into memory."""
    count = 0
    for job in listed:
        output.json_line(job)
        count += 1
    if not count:
        raise NothingThere(f"{arguments.queue} has no such jobs")
    return exits.OK


def _listed(client: Client, arguments: argparse.Namespace) -> Iterator[JobView]:
    listing = client.jobs(arguments.queue, **filter_of(arguments), after=arguments.after)
    yield from listing if arguments.all else islice(listing, arguments.limit)


def _rows(found: Iterable[JobView]) -> Iterator[tuple[object, ...]]:
    return (
        (
            str(job.seq),
            job.state.replace("_", " "),
            job.deliveries or None,
            output.lasting(job.age_ms),
            output.when(job.deadline or job.not_before),
            job.node,
            job.tag,
            job.key,
            job.priority or None,
            job.group,
            job.last_error,
            output.to_json(job.data),
        )
        for job in found
    )


def _job(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.job(arguments.queue, arguments.seq, ended=True)
    if arguments.json:
        output.json_line(found)
        return exits.OK
    job = found.job
    output.facts(
        (
            ("job", f"{found.topic} {job.seq}"),
            ("state", job.state.replace("_", " ")),
            ("why", found.why.text if found.why is not None else None),
            ("copy", f"{found.copy.topic} {found.copy.seq}" if found.copy is not None else None),
            ("written", output.when(job.ts or None)),
            ("deliveries", job.deliveries),
            ("at most", job.max_deliveries),
            ("holder", job.node),
            ("until", output.when(job.deadline)),
            ("not before", output.when(job.not_before)),
            ("expires", output.when(job.expires_at)),
            ("tag", job.tag),
            ("key", job.key),
            ("priority", job.priority or None),
            ("group", job.group),
            ("progress", None if job.progress is None else f"{job.progress:.0%}"),
            ("note", job.note),
            ("ended", output.when(job.ended_at)),
            ("result", None if job.result is None else output.to_json(job.result)),
            ("error", job.error),
            ("last error", job.last_error),
            ("meta", None if job.meta is None else output.to_json(job.meta)),
            ("data", output.to_json(job.data)),
        )
    )
    steps = found.timeline or found.history
    if steps:
        output.line("")
        columns = (
            TableColumn("at"),
            TableColumn("event"),
            TableColumn("node"),
            TableColumn("until"),
        )
        output.table(
            (*columns, TableColumn("error", is_long=True)),
            (
                (
                    output.when(step.at),
                    _event_of(step),
                    step.node,
                    output.when(step.deadline or step.not_before),
                    step.error,
                )
                for step in steps
            ),
        )
    if not (found.timeline_complete if found.timeline else found.history_complete):
        output.say("older steps are no longer known")
    return exits.OK


def _event_of(step: JobEvent) -> str:
    """A step in words, with where its copy is or where it came from."""
    words = step.event.replace("_", " ")
    return f"{words} ({step.topic} {step.seq})" if step.topic is not None else words


def _groups(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.groups(arguments.queue, order=arguments.order, limit=arguments.limit)
    if not found.groups:
        raise NothingThere(f"no job of {arguments.queue} has a group, or the queue has no `groups`")
    if arguments.json:
        for group in found.groups:
            output.json_line(group)
        return exits.OK
    output.table(
        (
            TableColumn("group"),
            number("waiting"),
            number("in flight"),
            number("oldest seq"),
            number("oldest ms"),
            TableColumn("may go"),
        ),
        (
            (
                group.group,
                group.waiting,
                group.in_flight,
                group.oldest_seq,
                group.oldest_ms,
                "no" if group.blocked else "yes",
            )
            for group in found.groups
        ),
    )
    if found.count > len(found.groups):
        output.say(f"{len(found.groups)} of about {found.count} groups")
    return exits.OK


def _workers(arguments: argparse.Namespace) -> int:
    if arguments.queue is None or arguments.node is not None or arguments.jobs is not None:
        return _all_workers(arguments)
    with connect(arguments) as client:
        found = client.workers(arguments.queue)
    if not found:
        raise NothingThere(f"no worker has claimed from {arguments.queue} since the server started")
    if arguments.json:
        for worker in found:
            output.json_line(worker)
        return exits.OK
    names = ("in_flight", "streams", "claimed", "acked", "nacked", "rejected", "expired")
    columns = (TableColumn("worker"), *(number(name.replace("_", " ")) for name in names))
    output.table(
        (*columns, TableColumn("last seen")),
        (
            (
                worker.node,
                *(getattr(worker, name) for name in names),
                output.when(worker.last_seen_ts),
            )
            for worker in found
        ),
    )
    return exits.OK


def _all_workers(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.all_workers(
            node=arguments.node, topic=arguments.queue, jobs=arguments.jobs or 0
        ).workers
    if not found:
        raise NothingThere("no such worker has claimed jobs since the server started")
    if arguments.json:
        for worker in found:
            output.json_line(worker)
        return exits.OK
    names = ("in_flight", "claimed", "acked", "nacked", "rejected", "expired")
    numbers = [number(name.replace("_", " ")) for name in names]
    last = (number("done/s"), TableColumn("last seen"), TableColumn("queues", is_long=True))
    output.table(
        (TableColumn("worker"), TableColumn("state"), *numbers, *last),
        (
            (
                worker.node,
                worker.state,
                *(getattr(worker, name) for name in names),
                f"{worker.acked_per_s:,.1f}",
                output.when(worker.last_seen_ts),
                ", ".join(part.topic for part in worker.queues),
            )
            for worker in found
        ),
    )
    if arguments.jobs:
        output.line("")
        columns = ("age", "lease left", "runs")
        output.table(
            (TableColumn("worker"), TableColumn("queue"), number("seq"), *map(number, columns)),
            (
                (
                    worker.node,
                    job.topic,
                    str(job.seq),
                    output.lasting(job.age_ms),
                    output.lasting(job.lease_left_ms),
                    job.deliveries,
                )
                for worker in found
                for job in worker.jobs
            ),
        )
    return exits.OK
