"""What do priorities and groups cost, and do groups keep one tenant from delaying others?

Owns: the rows of ordered claims, of memory per group, and of a noisy tenant. The queues of the
claims are on one server and are asked in turn, so that all see the same machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench.load import (
    LoadFailed,
    LoneConnection,
    ack_request,
    claim_request,
    decode_claimed,
    expect_acked,
    expect_count,
    job,
    request,
)
from bench.machine import rss_bytes
from bench.rows import Row, Target
from bench.session import Session

NODE = "w"
CLAIM_JOBS = 100
WARMUP_ROUNDS = 5
PER_REQUEST = 1000
TENANTS = 100
GROUPS = 100_000

Extra = Callable[[int], bytes]
"""The members of a record beside its data, by its number."""

FAIR = b',"groups":{"mode":"fair"}'
FIFO = b',"groups":{"mode":"fifo"}'


class OrderedQueue:
    """A queue that keeps its size.

    Attributes:
        extra: What its next jobs say beside their data.
        took: Seconds of each claim.
    """

    def __init__(
        self, connection: LoneConnection, name: str, config: bytes, extra: Extra, jobs: int
    ) -> None:
        self.took: list[float] = []
        self._connection = connection
        self.name = name
        self.extra = extra
        self._written = 0
        body = b'{"type":"queue","durability":"memory"%b}' % config
        connection.call(request("PUT", f"/v0/topics/{name}", body))
        for count in _portions(jobs):
            self.write(count)

    def write(self, count: int) -> None:
        """Append the next jobs."""
        numbers = range(self._written, self._written + count)
        self._written += count
        records = b",".join(b'{"data":%b%b}' % (job(n), self.extra(n)) for n in numbers)
        body = b'{"records":[%b]}' % records
        reply = self._connection.call(request("POST", f"/v0/topics/{self.name}", body))
        expect_count(reply[1], count)

    def round(self) -> None:
        """One claim on the clock, then ack and refill."""
        took, body = self._connection.call(claim_request(self.name, NODE, CLAIM_JOBS))
        claimed = decode_claimed(body).claimed
        if len(claimed) != CLAIM_JOBS:
            raise LoadFailed(f"{self.name}: claimed {len(claimed)} jobs")
        self.took.append(took)
        ack = ack_request(self.name, NODE, claimed)
        expect_acked(self._connection.call(ack)[1], CLAIM_JOBS)
        self.write(CLAIM_JOBS)

    def median(self) -> float:
        """Seconds of a claim."""
        return statistics.median(self.took[WARMUP_ROUNDS:])


def ordered_claims(session: Session) -> list[Row]:
    """A claim of 100 with priorities and with groups, over one of a plain queue of the same size;
    and the same at a small backlog."""
    large = min(session.scale.backlog_jobs, GROUPS)
    small = session.scale.backlog_small_jobs
    kinds: dict[str, tuple[bytes, Extra]] = {
        "plain": (b"", _nothing),
        "priorities": (b"", lambda n: b',"priority":%d' % (n * 7 % 10)),
        "ageing": (b',"priority_ageing_ms":60000', lambda n: b',"priority":%d' % (n * 7 % 10)),
        "fair": (FAIR, lambda n: b',"group":"tenant-%d"' % (n % large)),
        "fifo": (FIFO, lambda n: b',"group":"tenant-%d"' % (n % large)),
    }
    rows = []
    with session.server() as server:
        connection = LoneConnection(server.address)
        queues = {
            (kind, jobs): OrderedQueue(connection, f"bench.{kind}.{jobs}", config, extra, jobs)
            for kind, (config, extra) in kinds.items()
            for jobs in (small, large)
        }
        for _ in range(session.scale.claim_rounds + WARMUP_ROUNDS):
            for queue in queues.values():
                queue.round()
        connection.close()
    plain = queues["plain", large].median()
    for kind in kinds:
        median, at_small = queues[kind, large].median(), queues[kind, small].median()
        if kind != "plain":
            title = f"a claim of 100 by {kind} over a plain one, {large:,} jobs"
            row = Row(f"order-{kind}", title, "x", Target(2.0, at_most=True))
            row.values.append(median / plain)
            rows.append(row)
        session.tell(
            f"  order: {kind} {median * 1000:.3f} ms, {at_small * 1000:.3f} ms at {small:,}"
        )
        flat = Row(f"order-{kind}-flat", f"the same by {kind} at {large:,} over {small:,}", "x")
        flat.values.append(median / at_small)
        rows.append(flat)
    return rows


def group_memory(session: Session) -> list[Row]:
    """What a group with one waiting job costs beyond the job."""
    groups = session.scale.backlog_jobs
    held: list[float] = []
    for config, extra in (
        (b"", _nothing),
        (FAIR, lambda n: b',"group":"tenant-%d"' % n),
        (FIFO, lambda n: b',"group":"tenant-%d"' % n),
    ):
        with session.server() as server:
            before = rss_bytes(server.pid)
            connection = LoneConnection(server.address)
            OrderedQueue(connection, "bench.groups", config, extra, groups)
            connection.close()
            held.append((rss_bytes(server.pid) - before) / groups)
    rows = []
    for mode, value in zip(("fair", "fifo"), held[1:], strict=True):
        title = f"memory per group with one job, {mode}, {groups:,} groups"
        row = Row(f"order-memory-{mode}", title, "B", Target(200, at_most=True))
        row.values.append(value - held[0])
        session.tell(f"  order-memory: {mode} {value:.0f} B, plain {held[0]:.0f} B a job")
        rows.append(row)
    return rows


def noisy_tenant(session: Session) -> list[Row]:
    """How long jobs of quiet tenants wait beside one with many jobs, over without it. Both queues
    are on one server and are asked in turn."""
    noisy = session.scale.backlog_jobs
    waits: dict[int, list[float]] = {}
    with session.server() as server:
        connection = LoneConnection(server.address)
        queues = {}
        for jobs in (0, noisy):
            name = f"bench.tenants.{jobs}"
            queues[jobs] = OrderedQueue(connection, name, FAIR, lambda n: b',"group":"noisy"', jobs)
            queues[jobs].extra = lambda n: b',"group":"quiet-%d"' % (n % TENANTS)
        for _ in range(WARMUP_ROUNDS * 4):
            for jobs, queue in queues.items():
                waits.setdefault(jobs, []).extend(_quiet_waits(queue, connection))
        connection.close()
    beside, alone = statistics.median(waits[noisy]), statistics.median(waits[0])
    title = f"wait of 100 quiet tenants beside {noisy:,} jobs of another, over without"
    row = Row("order-noisy", title, "x", Target(2.0, at_most=True))
    row.values.append(beside / alone)
    session.tell(f"  order-noisy: {beside * 1000:.2f} ms, {alone * 1000:.2f} ms without")
    return [row]


def _quiet_waits(queue: OrderedQueue, connection: LoneConnection) -> Iterator[float]:
    """Seconds from the write of quiet jobs, one of each tenant, to the claim that has each."""
    queue.write(TENANTS)
    waited, left = 0.0, TENANTS
    while left:
        took, body = connection.call(claim_request(queue.name, NODE, 10))
        claimed = decode_claimed(body).claimed
        acked, _ = connection.call(ack_request(queue.name, NODE, claimed))
        waited += took + acked
        quiet = sum(lease.group != "noisy" for lease in claimed)
        left -= quiet
        yield from [waited] * quiet


def _portions(jobs: int) -> Sequence[int]:
    whole, rest = divmod(jobs, PER_REQUEST)
    return [PER_REQUEST] * whole + ([rest] if rest else [])


def _nothing(number: int) -> bytes:
    return b""
