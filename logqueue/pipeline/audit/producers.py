"""Rules about what the log does by itself: transactional appends, routers, the order of decisions.

Owns: findings that follow from the history alone, without looking at records. Must not know: Spark,
files.
"""

from __future__ import annotations

from collections.abc import Iterator

from logqueue.errors import quoted
from logqueue.pipeline.audit.findings import Finding, Rule
from logqueue.pipeline.audit.history import AuditHistory, Edge, Instance
from logqueue.segments import ranges as seq_ranges

RULES = (
    Rule("epochs_contiguous", "the epochs of a producer follow one another without a gap"),
    Rule("epochs_once", "each epoch of a producer is committed once"),
    Rule("epoch_ranges", "the ranges an epoch reports are the records it appended"),
    Rule("router_copies", "a router copies every record of its source once and in order"),
    Rule("orders_once", "no two transactions of the two logs have the same order"),
)


def findings(history: AuditHistory) -> Iterator[Finding]:
    """What the history itself tells of these rules."""
    yield from _epochs(history)
    for _, edge in sorted(history.edges.items()):
        yield from _copies(history, edge)
    for order in sorted(set(history.orders.doubled)):
        yield Finding(
            "orders_once",
            "error",
            None,
            None,
            None,
            f"two transactions have the order {order}",
            {"order": order},
        )


def seq_findings(history: AuditHistory) -> Iterator[Finding]:
    """Seqs that writes gave twice or passed over, found where they were given."""
    for _, inst in sorted(history.instances.items()):
        for first, last, order in inst.doubled:
            yield Finding(
                "seq_unique",
                "error",
                inst.name,
                first,
                last,
                f"{last - first + 1} seqs were given to more than one record",
                {"log_id": inst.log_id, "order": order},
            )
        for first, last, order in inst.missing:
            yield Finding(
                "seq_contiguous",
                "error",
                inst.name,
                first,
                last,
                f"{last - first + 1} seqs have no record, and the log does not say why",
                {"log_id": inst.log_id, "order": order},
            )


def _epochs(history: AuditHistory) -> Iterator[Finding]:
    for name, epochs in sorted(history.producers.items()):
        for first, last, order in epochs.gaps:
            yield Finding(
                "epochs_contiguous",
                "error",
                None,
                None,
                None,
                f"epochs {first} to {last} of producer {quoted(name)} are missing",
                {"producer": name, "first_epoch": first, "last_epoch": last, "order": order},
            )
        for epoch, order in epochs.repeated:
            yield Finding(
                "epochs_once",
                "error",
                None,
                None,
                None,
                f"epoch {epoch} of producer {quoted(name)} was committed again",
                {"producer": name, "epoch": epoch, "order": order},
            )
        for epoch, order, difference in epochs.unlike:
            yield Finding(
                "epoch_ranges",
                "error",
                None,
                None,
                None,
                f"epoch {epoch} of producer '{name}' did not append what it says: {difference}",
                {"producer": name, "epoch": epoch, "order": order},
            )


def _copies(history: AuditHistory, edge: Edge) -> Iterator[Finding]:
    source, dest = history.instances.get(edge.source), history.instances.get(edge.dest)
    if source is None or dest is None:
        return
    where = {"router": edge.name, "dest": dest.name, "log_id": source.log_id}

    def finding(first: int, last: int, detail: str, order: int | None = None) -> Finding:
        evidence = where if order is None else {**where, "order": order}
        return Finding("router_copies", "error", source.name, first, last, detail, evidence)

    for first, last, order in edge.repeated:
        yield finding(first, last, "records were copied a second time", order)
    unknown = seq_ranges.without(edge.copied, source.appended)
    for first, last in seq_ranges.cut(unknown, source.known_from, 1 << 62):
        yield finding(first, last, "records were copied that the source never had")
    if not _implies_all(source, edge):
        return
    plain: seq_ranges.Ranges = []
    for order, before, cursor, copies in edge.plain:
        seq_ranges.add(plain, before + 1, cursor)
        due = seq_ranges.count(seq_ranges.cut(source.appended, before + 1, cursor))
        if copies != due:
            yield finding(before + 1, cursor, f"{copies} copies were made of {due} records", order)
    implied = seq_ranges.cut(source.appended, (edge.started or 0) + 1, edge.cursor)
    for part in (edge.copied, edge.skipped, plain):
        implied = seq_ranges.without(implied, part)
    for first, last in implied:
        yield finding(first, last, "records were passed over by a router that copies all")


def _implies_all(source: Instance, edge: Edge) -> bool:
    """Whether every record of the source must have been copied: none could go before its turn."""
    may_go = source.is_queue or source.has_removals or source.was_in_memory
    expires = any(config.ttl_ms for _, config in source.configs)
    return not (edge.has_filter or edge.started is None or may_go or expires)
