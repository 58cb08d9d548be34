"""What-if on one machine: queues of a lifecycle run, replayed under scenarios.

Owns: reading what one queue needs, the tables of all queues. Must not know: how a queue is replayed
(`simulation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.simulation_tables import (
    REPORT_BACK_TEST,
    REPORT_WHAT_IF,
    REPORT_WHAT_IF_BACKLOG,
    SIMULATED,
)
from logqueue.pipeline.progress import Note, silent
from logqueue.pipeline.reports.production import MadeTable, write_table
from logqueue.pipeline.simulation.measured import measure, measure_halves
from logqueue.pipeline.simulation.replay import RUNS_MIN
from logqueue.pipeline.simulation.scenario import Scenario
from logqueue.pipeline.simulation.what_if import seeds_for, simulate

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from logqueue.pipeline.lifecycle.table_kind import TableKind
    from logqueue.pipeline.reports.queries.sources import ReportScope
    from logqueue.pipeline.storage.tree import FileTree

JOBS_MAX: Final = 30_000
"""The latest jobs of a queue that are replayed."""

_JOBS: Final = """
    SELECT log_id, seq, tag, ready_at, first_claim_at, finished_at, state, attempts
    FROM raw_jobs WHERE topic = ? AND ready_at IS NOT NULL ORDER BY ready_at DESC, seq DESC LIMIT ?
"""
_ATTEMPTS: Final = """
    SELECT log_id, job_seq, worker, attempt, outcome, reason, tag, ready_at, claimed_at, ended_at
    FROM raw_attempts WHERE topic = ? AND epoch_ms(claimed_at) >= ?
"""


class Simulation(NamedTuple):
    """What a run is to simulate.

    Attributes:
        scenarios: What is to be different.
        seeds: Replays of each; None for as many as there is time for.
    """

    scenarios: Sequence[Scenario]
    seeds: int | None = None


def simulate_queues(
    connection: duckdb.DuckDBPyConnection,
    simulation: Simulation,
    *,
    start: int,
    end: int,
    bucket: int,
    note: Note = silent,
) -> dict[str, pa.Table]:
    """The tables of a simulation, by name.

    Args:
        connection: Has the relations `raw_jobs` and `raw_attempts`.
        simulation: What is asked for.
        start, end: Of the range, ms since the epoch.
        bucket: Of the backlog, ms.
        note: Called at each step.

    Raises:
        PipelineError: No queue has enough runs to draw from.
    """
    made: dict[TableKind, list[dict[str, Any]]] = {kind: [] for kind in SIMULATED}
    counts = connection.execute(
        "SELECT topic, count(*) FROM raw_jobs WHERE ready_at IS NOT NULL GROUP BY topic ORDER BY 1"
    ).fetchall()
    for place, (topic, count) in enumerate(counts):
        jobs = connection.sql(_JOBS, params=[topic, JOBS_MAX]).to_arrow_table()
        first = start if count <= JOBS_MAX else _first_ready(jobs)
        attempts = connection.sql(_ATTEMPTS, params=[topic, first]).to_arrow_table()
        facts = measure(jobs, attempts, topic, first, end, count - jobs.num_rows)

        def note_of_topic(
            text: str, share: float | None, place: int = place, topic: str = topic
        ) -> None:
            note(f"{topic}: {text}", (place + (share or 0.0)) / len(counts))

        found = simulate(
            facts,
            measure_halves(jobs, attempts, facts),
            simulation.scenarios,
            seeds=seeds_for(len(facts.jobs), len(simulation.scenarios), simulation.seeds),
            bucket=bucket,
            note=note_of_topic,
        )
        if found is not None:
            made[REPORT_WHAT_IF] += found.what_if
            made[REPORT_WHAT_IF_BACKLOG] += found.backlog
            made[REPORT_BACK_TEST] += found.back_test
    if not made[REPORT_WHAT_IF]:
        names = ", ".join(quoted(topic) for topic, _ in counts[:3]) or "none"
        raise PipelineError(
            f"no queue has the {RUNS_MIN} finished runs that a simulation draws from (queues: "
            f"{names}); give a longer range or other topics"
        )
    return {kind.name: _table(kind, rows) for kind, rows in made.items()}


def write_simulation(
    connection: duckdb.DuckDBPyConnection,
    simulation: Simulation,
    scope: ReportScope,
    tree: FileTree,
    formats: Sequence[str],
    note: Note,
) -> tuple[dict[str, MadeTable], dict[str, Any]]:
    """Simulate, and write the tables.

    Returns:
        The tables, and what the summary of the run says of them.
    """
    found = simulate_queues(
        connection,
        simulation,
        start=scope.start,
        end=scope.end,
        bucket=scope.bucket,
        note=note,
    )
    made = {
        kind.name: write_table(tree, kind, found[kind.name], scope, formats) for kind in SIMULATED
    }
    return made, {
        "what_if": found[REPORT_WHAT_IF.name].to_pylist(),
        "back_test": found[REPORT_BACK_TEST.name].to_pylist(),
    }


def _first_ready(jobs: pa.Table) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    first = pc.min(jobs["ready_at"]).cast(pa.timestamp("ms", tz="UTC"), safe=False)
    return int(first.cast(pa.int64()).as_py())


def _table(kind: TableKind, rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    columns = []
    for field in kind.arrow():
        values = [row[field.name] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    made = pa.table(columns, schema=kind.arrow())
    return made.sort_by([(name, "ascending") for name in kind.order])
