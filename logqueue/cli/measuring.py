"""`logqueue bench`: a short measurement of a server, from where the command runs.

Owns: the phases and their figures. Must not know: how a call is made. It works on a queue of its
own, and deletes it.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, positive
from logqueue.cli.connection import connect, url_of
from logqueue.cli.exits import CommandError, UsageError
from logqueue.cli.output import TableColumn, number
from logqueue.cli.topics import DURABILITIES

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.shapes import Job

JOBS = 10_000
BATCH = 100
SINGLE_CALLS_MAX = 500


def add_to(commands: Commands) -> None:
    """Declare the command."""
    bench = commands.add_calling(
        "bench",
        _bench,
        "measure append, claim and ack of a server, for a few seconds",
        more="One connection, one call at a time: what one caller sees from here, not what the "
        "server can do. It makes a queue of its own and deletes it at the end.",
        examples=(
            "logqueue bench",
            "logqueue bench --url http://queue.internal:4000 --durability fsync",
            "logqueue bench --jobs 100000 --batch 1000 --json",
        ),
    )
    bench.add_argument(
        "--jobs", type=positive, default=JOBS, metavar="N", help="jobs in all (default: 10000)"
    )
    bench.add_argument(
        "--batch", type=positive, default=BATCH, metavar="N", help="jobs per call (default: 100)"
    )
    bench.add_argument("--bytes", type=positive, default=100, metavar="N", help="size of a job")
    bench.add_argument("--durability", choices=DURABILITIES, default="disk", help="default: disk")


@dataclass
class BenchPhase:
    """One kind of call, made again and again.

    Attributes:
        calls_s: How long each call took, in seconds.
    """

    name: str
    batch: int
    jobs: int = 0
    calls_s: list[float] = field(default_factory=list)

    @contextmanager
    def call(self, jobs: int) -> Iterator[None]:
        """Time a call for so many jobs."""
        began = time.perf_counter()
        yield
        self.calls_s.append(time.perf_counter() - began)
        self.jobs += jobs

    @property
    def per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / max(sum(self.calls_s), 1e-9)

    def quantile_ms(self, share: float) -> float:
        """The latency in ms that this share of the calls stayed within."""
        ordered = sorted(self.calls_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1000


def _bench(arguments: argparse.Namespace) -> int:
    if arguments.batch > 1000:
        raise UsageError("--batch must be at most 1000")
    queue = f"logqueue-bench.{secrets.token_hex(4)}"
    with connect(arguments) as client:
        client.put_topic(queue, type="queue", durability=arguments.durability, lease_ms=600_000)
        try:
            phases = _measured(client, queue, arguments)
        finally:
            client.drop_topic(queue)
    _report(arguments, phases)
    return exits.OK


def _measured(client: Client, queue: str, arguments: argparse.Namespace) -> list[BenchPhase]:
    data = {"bench": "x" * max(arguments.bytes - 12, 0)}
    single = min(arguments.jobs, SINGLE_CALLS_MAX)
    rounds = [(arguments.batch, arguments.jobs)]
    if arguments.batch > 1:
        rounds.append((1, single))
    phases = []
    for batch, jobs in rounds:
        phases += [BenchPhase(name, batch) for name in ("append", "claim", "ack")]
        append, claim, ack = phases[-3:]
        for count in _parts(jobs, batch):
            with append.call(count):
                client.append(queue, [data] * count, chunk=count, return_seqs=False)
        leased = [_claimed(client, queue, count, claim) for count in _parts(jobs, batch)]
        for part in leased:
            with ack.call(len(part)):
                settled = client.ack(queue, part)
            if len(settled.counted) != len(part):
                raise CommandError(f"of {len(part)} acks only {len(settled.counted)} counted")
    return phases


def _parts(jobs: int, batch: int) -> Iterator[int]:
    for start in range(0, jobs, batch):
        yield min(batch, jobs - start)


def _claimed(client: Client, queue: str, count: int, claim: BenchPhase) -> list[Job]:
    with claim.call(count):
        jobs = client.claim(queue, max=count).jobs
    if len(jobs) != count:
        raise CommandError(f"a claim of {count} jobs gave {len(jobs)}: does the key see the queue?")
    return jobs


def _report(arguments: argparse.Namespace, phases: list[BenchPhase]) -> None:
    if arguments.json:
        rows = [
            {
                "name": phase.name,
                "batch": phase.batch,
                "jobs": phase.jobs,
                "per_s": round(phase.per_s, 1),
                **{f"p{share}_ms": round(phase.quantile_ms(share / 100), 3) for share in (50, 99)},
            }
            for phase in phases
        ]
        url, durability = url_of(arguments), arguments.durability
        output.json_line({"url": url, "durability": durability, "rows": rows})
        return
    shown: Callable[[float], str] = "{:,.2f}".format
    columns = (TableColumn("call"), number("jobs per call"), number("jobs/s"))
    output.table(
        (*columns, number("p50 ms"), number("p99 ms")),
        (
            (
                phase.name,
                phase.batch,
                f"{phase.per_s:,.0f}",
                shown(phase.quantile_ms(0.5)),
                shown(phase.quantile_ms(0.99)),
            )
            for phase in phases
        ),
    )
