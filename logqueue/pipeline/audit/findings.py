"""What an audit finds: rules by name, findings in one table, the files they are written to.

Owns: the rule book's shape, the schema of `audit_findings`, how neighbouring seqs become one
finding. Must not know: how any rule is checked, Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.publishing import published_together

Severity = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
FINDINGS_PER_RULE_MAX: Final = 1000
"""Findings of one rule, severity and topic; more than that become one that counts them."""

TABLE: Final = "audit_findings"
COLUMNS: Final = (
    "audit_id",
    "rule",
    "severity",
    "topic",
    "first_seq",
    "last_seq",
    "detail",
    "evidence",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that must hold.

    Attributes:
        name: How it is asked for and reported.
        statement: What must hold, in one line.
    """

    name: str
    statement: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a rule does not hold.

    Attributes:
        severity: "error": the log contradicts itself. "warning": needs attention. "info": what
            cannot be checked, and why.
        topic: None when it is about no topic, or about several.
        first_seq, last_seq: The seqs it is about, both included; None when it is about none.
        evidence: What is needed to find the place: file, offset, order, worker, ...
    """

    rule: str
    severity: Severity
    topic: str | None
    first_seq: int | None
    last_seq: int | None
    detail: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def sort_key(self) -> tuple[Any, ...]:
        """Worst first, then by rule and place: the same findings are always in the same order."""
        return (
            SEVERITIES.index(self.severity),
            self.rule,
            self.topic or "",
            self.first_seq or 0,
            self.last_seq or 0,
            self.detail,
            self.evidence_text(),
        )

    def evidence_text(self) -> str:
        """The evidence as JSON with sorted keys."""
        return json.dumps(dict(self.evidence), sort_keys=True, ensure_ascii=False)


def require_rules(asked: Sequence[str] | str | None, book: Sequence[Rule]) -> frozenset[str]:
    """The names of the rules to check; all of them when none is asked for.

    Raises:
        PipelineError: There is no rule of that name.
    """
    known = [rule.name for rule in book]
    if asked is None:
        return frozenset(known)
    names = [name.strip() for name in (asked.split(",") if isinstance(asked, str) else asked)]
    names = [name for name in names if name]
    for name in names:
        if name not in known:
            raise PipelineError(
                f"there is no audit rule {quoted(name)}; rules are {', '.join(known)}"
            )
    if not names:
        raise PipelineError(f"no audit rule is named; rules are {', '.join(known)}")
    return frozenset(names)


def runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending seqs as runs of neighbours, both ends included."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in their order, none twice, and a bounded number of each kind."""
    by_place: dict[tuple[Any, ...], Finding] = {}
    for finding in sorted(findings, key=Finding.sort_key):
        place: tuple[Any, ...] = (
            finding.rule,
            finding.severity,
            finding.topic,
            finding.first_seq,
            finding.last_seq,
        )
        if finding.first_seq is None:
            place = (*place, finding.detail, finding.evidence_text())
        by_place.setdefault(place, finding)
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in by_place.values():
        groups.setdefault((finding.rule, finding.severity, finding.topic), []).append(finding)
    kept: list[Finding] = []
    for group in groups.values():
        kept.extend(group[:FINDINGS_PER_RULE_MAX])
        rest = group[FINDINGS_PER_RULE_MAX:]
        if rest:
            kept.append(_counted(rest))
    return sorted(kept, key=Finding.sort_key)


def _counted(rest: Sequence[Finding]) -> Finding:
    firsts = [f.first_seq for f in rest if f.first_seq is not None]
    lasts = [f.last_seq for f in rest if f.last_seq is not None]
    count = sum(int(f.evidence.get("findings", 1)) for f in rest)
    return Finding(
        rest[0].rule,
        rest[0].severity,
        rest[0].topic,
        min(firsts, default=None),
        max(lasts, default=None),
        f"{count} more findings of this rule are in this range",
        {"findings": count},
    )


def rows(audit_id: str, findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The findings as rows of the table, in its order of columns."""
    return [
        dict(
            zip(
                COLUMNS,
                (
                    audit_id,
                    finding.rule,
                    finding.severity,
                    finding.topic,
                    finding.first_seq,
                    finding.last_seq,
                    finding.detail,
                    finding.evidence_text(),
                ),
                strict=True,
            )
        )
        for finding in findings
    ]


def write(to: str, audit_id: str, findings: Sequence[Finding]) -> dict[str, str]:
    """Write the table, as Parquet and as one JSON object per line; what was there is replaced.

    Args:
        to: A directory or URL; made if need be.

    Returns:
        Paths by format.
    """
    # Imported here: the rule book is read by people who have no pyarrow.
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {name: pa.string() for name in COLUMNS}
    schema = pa.schema({**texts, "first_seq": pa.int64(), "last_seq": pa.int64()})
    table_rows = rows(audit_id, findings)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table_rows)
    names = {"parquet": f"{TABLE}/findings.parquet", "json": f"{TABLE}.json"}
    with published_together(to) as space:
        with space.tree.scratch(names["parquet"]) as draft:
            pq.write_table(pa.Table.from_pylist(table_rows, schema=schema), draft)
            space.tree.add(draft, names["parquet"])
        space.tree.replace(names["json"], lines.encode())
    return {kind: space.place.path(name) for kind, name in names.items()}
