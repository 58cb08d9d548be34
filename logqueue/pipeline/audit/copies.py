"""Rules about copies of jobs: dead letters, archived jobs, and dead letters that went back.

Owns: which topics get copies of which queues, and what copies that do not agree with the ends of
jobs mean. Must not know: files, engines, how rows were read.

A copy and the end of its job are one transaction, so each end has one copy and each copy one end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from logqueue.pipeline.audit.findings import Finding, runs
from logqueue.pipeline.audit.history import AuditHistory, Instance
from logqueue.pipeline.audit.job_rows import Pair, codes_of, is_dead_letter
from logqueue.pipeline.audit.verdicts import CopiesVerdict
from logqueue.segments import ranges as seq_ranges

DEAD_LETTER: Final = "dead_letter"
ARCHIVE: Final = "archive"
_RULE: Final = {DEAD_LETTER: "dead_letter_copy", ARCHIVE: "archive_copy"}


def pairs_of(history: AuditHistory, covers: Callable[[str], bool]) -> list[Pair]:
    """Which topics get copies of which queues, by their configs over time.

    Args:
        history: What the log says of its topics.
        covers: Whether a topic's records are part of the audit; pairs that are not are left out.
    """
    found: set[Pair] = set()
    for inst in history.instances.values():
        for _, config in inst.configs:
            if config.is_queue and config.dead_letter is not None:
                found.add((DEAD_LETTER, inst.name, config.dead_letter))
            if config.is_queue and config.archive is not None:
                found.add((ARCHIVE, inst.name, config.archive))
    return sorted(pair for pair in found if covers(pair[1]) and covers(pair[2]))


def copy_findings(
    verdicts: Sequence[CopiesVerdict],
    pairs: Sequence[Pair],
    history: AuditHistory,
    floors: Mapping[str, int],
) -> Iterator[Finding]:
    """What copies that do not agree mean.

    Args:
        verdicts: Of all buckets.
        pairs: From `pairs_of`.
        history: What the log says of its topics.
        floors: By name of a queue, the seq up to which jobs were evicted: an archive may have
            copies of them, and no event names them one by one.
    """
    targets = {(kind, source): target for kind, source, target in pairs}
    for verdict in verdicts:
        kind, source = verdict.kind, verdict.source
        target = targets[kind, source]
        gone = history.named(target) + history.named(source)
        missing = seq_ranges.union(verdict.missing)
        if history.is_partial or any(inst.dropped or inst.was_in_memory for inst in gone):
            missing = []
        extra = seq_ranges.union(verdict.extra)
        if kind == ARCHIVE:
            extra = seq_ranges.cut(extra, floors.get(source, 0) + 1, 1 << 62)
        if not history.is_whole or any(i.was_in_memory for i in history.named(source)):
            extra = []
        evidence = {"copies_in": target}
        says = f"ended, and {target} has no copy of it"
        yield from _findings(_RULE[kind], source, missing, says, evidence)
        says = f"has a copy in {target}, and did not end that way"
        yield from _findings(_RULE[kind], source, extra, says, evidence)
        for seq, count, copies in sorted(verdict.doubled):
            yield Finding(
                _RULE[kind],
                "error",
                source,
                seq,
                seq,
                f"has {count} copies in {target}",
                {"copies_in": target, "copies": copies},
            )


def _findings(
    rule: str, topic: str, ranges: seq_ranges.Ranges, says: str, evidence: Mapping[str, Any]
) -> Iterator[Finding]:
    for first, last in ranges:
        jobs = "the job" if first == last else f"each of {last - first + 1} jobs"
        yield Finding(rule, "error", topic, first, last, f"{jobs} {says}", evidence)


# -- redriven records ------------------------------------------------------------------------------

LETTER_COLUMNS: Final = ("topic", "seq", "meta", "log_id")
LETTERS: Final = pa.schema([("log_id", pa.string()), ("seq", pa.int64())])


def dead_letters(
    batches: Iterable[pa.RecordBatch], wanted: Mapping[str, frozenset[int]]
) -> Iterator[pa.RecordBatch]:
    """Which of some records are dead letters.

    Args:
        batches: With `LETTER_COLUMNS`.
        wanted: Seqs by log_id.
    """
    ids: list[str] = []
    seqs: list[int] = []
    for batch in batches:
        _, names = codes_of(batch.column("log_id"))
        if wanted.keys().isdisjoint(names):
            continue
        columns = (batch.column(name).to_pylist() for name in ("log_id", "seq", "meta"))
        for log_id, seq, meta in zip(*columns, strict=True):
            if seq in wanted.get(log_id, ()) and is_dead_letter(meta):
                ids.append(log_id)
                seqs.append(seq)
    arrays = [pa.array(ids, pa.string()), pa.array(seqs, pa.int64())]
    yield pa.RecordBatch.from_arrays(arrays, schema=LETTERS)


def redriven(
    history: AuditHistory, covers: Callable[[str], bool]
) -> tuple[list[Instance], dict[str, frozenset[int]]]:
    """Topics whose records went back as dead letters, and these records that must be at hand."""
    found = [
        inst for _, inst in sorted(history.instances.items()) if inst.redriven and covers(inst.name)
    ]
    seqs = {
        inst.log_id: frozenset(
            seq for _, part, _ in inst.redriven for seq in part if seq >= inst.known_from
        )
        for inst in found
    }
    return found, {log_id: part for log_id, part in seqs.items() if part}


def redrive_findings(
    instances: Sequence[Instance],
    wanted: Mapping[str, frozenset[int]],
    letters: Mapping[str, frozenset[int]],
) -> Iterator[Finding]:
    """Redriven records that are not dead letters, went back twice, or left no job behind.

    Args:
        instances, wanted: From `redriven`.
        letters: Of the records that are wanted, those that are dead letters.
    """
    for inst in instances:
        yield from _redriven_twice(inst)
        stray = wanted.get(inst.log_id, frozenset()) - letters.get(inst.log_id, frozenset())
        for first, last in runs(sorted(stray)):
            says, evidence = "was redriven and is not a dead letter", {"log_id": inst.log_id}
            yield Finding("redrive_once", "error", inst.name, first, last, says, evidence)


def _redriven_twice(inst: Instance) -> Iterator[Finding]:
    seen: set[int] = set()
    for order, seqs, copies in inst.redriven:
        evidence = {"log_id": inst.log_id, "order": order}
        again = sorted(seen.intersection(seqs))
        for first, last in runs(again):
            yield Finding(
                "redrive_once", "error", inst.name, first, last, "was redriven twice", evidence
            )
        seen.update(seqs)
        if copies < len(seqs):
            yield Finding(
                "redrive_once",
                "error",
                inst.name,
                min(seqs),
                max(seqs),
                f"{len(seqs)} dead letters went back, and {copies} jobs came of it",
                evidence,
            )
