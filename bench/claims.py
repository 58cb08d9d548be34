"""Does a claim cost more when more jobs wait?

Owns: the rows of the claim's cost. Two servers, one with the small backlog and one with the large,
are asked in turn, so that both see the same mood of the machine. What was claimed is acked and
replaced in between, off the clock: both backlogs keep their size.
"""

from __future__ import annotations

import statistics

import uvloop

from bench.load import (
    LoadFailed,
    LoneConnection,
    ack_request,
    append_request,
    claim_request,
    decode_claimed,
    decode_state,
    expect_acked,
    expect_count,
    fill,
    job,
    queue_request,
    request,
)
from bench.rows import Row, Target
from bench.session import Session

TOPIC = "bench.claim"
NODE = "w"
CLAIM_JOBS = 100
WARMUP_ROUNDS = 5


def claim_cost(session: Session) -> list[Row]:
    """Median time of a claim of 100 at both backlogs, and their ratio."""
    small, large = session.scale.backlog_small_jobs, session.scale.backlog_jobs
    ratio = Row(
        "claim-ratio",
        f"a claim of 100 at {large:,} over one at {small:,} jobs",
        "x",
        Target(1.2, at_most=True),
    )
    costs = [
        Row("claim-small", f"a claim of 100 at {small:,} jobs, median", "ms"),
        Row("claim-large", f"a claim of 100 at {large:,} jobs, median", "ms"),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as first, session.server() as second:
            queues = []
            for server, jobs in ((first, small), (second, large)):
                queue = Backlogged(server.address, jobs)
                uvloop.run(fill(server.address, TOPIC, jobs, CLAIM_JOBS, connections=8))
                queues.append(queue)
            for _ in range(session.scale.claim_rounds + WARMUP_ROUNDS):
                for queue in queues:
                    queue.round()
            medians = [queue.end() for queue in queues]
        for row, value in zip(costs, medians, strict=True):
            row.values.append(value * 1000)
        ratio.values.append(medians[1] / medians[0])
        session.tell(
            f"  claim-cost: {medians[0] * 1000:.3f} ms at {small:,}, "
            f"{medians[1] * 1000:.3f} ms at {large:,}, ratio {ratio.values[-1]:.2f}"
        )
    return [ratio, *costs]


class Backlogged:
    """One server whose queue is kept at its size."""

    def __init__(self, address: str, jobs: int) -> None:
        self._jobs = jobs
        self._took: list[float] = []
        self._connection = LoneConnection(address)
        self._connection.call(queue_request(TOPIC))
        self._claim = claim_request(TOPIC, NODE, CLAIM_JOBS)
        self._refill = append_request(TOPIC, [job(n) for n in range(CLAIM_JOBS)])

    def round(self) -> None:
        """One claim on the clock, then ack and refill."""
        took, body = self._connection.call(self._claim)
        claimed = decode_claimed(body).claimed
        if len(claimed) != CLAIM_JOBS:
            raise LoadFailed(f"claimed {len(claimed)} jobs of {self._jobs}")
        self._took.append(took)
        expect_acked(self._connection.call(ack_request(TOPIC, NODE, claimed))[1], CLAIM_JOBS)
        expect_count(self._connection.call(self._refill)[1], CLAIM_JOBS)

    def end(self) -> float:
        """The median of all claims but the first few."""
        state = decode_state(self._connection.call(request("GET", f"/v0/topics/{TOPIC}"))[1])
        self._connection.close()
        if state.count != self._jobs:
            raise LoadFailed(f"the backlog of {self._jobs} jobs has become {state}")
        return statistics.median(self._took[WARMUP_ROUNDS:])
