"""Which reports a run makes: names, bucket and limits, checked.

Owns: the choice of reports, durations, limits. Must not know: how a report is computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle import tables

RANGE_KEY = b"logqueue.range"
"""In the metadata of every table: the range it is of, as JSON."""
ON_DEMAND = ("event_log",)
"""Made only when it is asked for by name: it holds every step of every job."""
NEED_RULES = ("report_sla", "report_sla_summary")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


@dataclass(frozen=True)
class ReportSelection:
    """What a run is to report.

    Attributes:
        names: Of tables, in the order of `tables.REPORTS`.
        bucket: Length of a bucket, ms.
        rules: Limits, ms by rule.
    """

    names: tuple[str, ...]
    bucket: int
    rules: Mapping[str, int]


def select_reports(
    names: Sequence[str] = ("all",), bucket: str = "1m", sla: str | None = None
) -> ReportSelection:
    """Check what is asked for.

    Args:
        names: Of reports, `latency` or `report_latency`; "all" for all but the event log.
        bucket: A duration such as 1m, 5m, 1h or 1d.
        sla: Limits such as `wait=30s,e2e=5m`.

    Raises:
        PipelineError: There is no such report, or a duration is none.
    """
    known = [kind.name for kind in tables.REPORTS]
    rules = parse_rules(sla or "")
    chosen: set[str] = set()
    for name in names or ("all",):
        full = name if name in known else f"report_{name}"
        if name == "all":
            chosen.update(n for n in known if n not in ON_DEMAND)
        elif full not in known:
            listed = ", ".join(n.removeprefix("report_") for n in known)
            raise PipelineError(f"unknown report {quoted(name)}: use one of {listed}, or all")
        elif full in NEED_RULES and not rules:
            raise PipelineError(f"report {name} needs limits: sla wait=30s,run=1m,e2e=5m")
        else:
            chosen.add(full)
    if not rules:
        chosen.difference_update(NEED_RULES)
    ordered = tuple(name for name in known if name in chosen)
    return ReportSelection(ordered, parse_duration(bucket, "the bucket"), rules)


def parse_duration(text: str, name: str) -> int:
    """A duration such as `30s`, `1.5h` or `250ms`, in ms.

    Raises:
        PipelineError: It is none, or nothing is left of it.
    """
    match = _DURATION.fullmatch(text.strip())
    length = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if length <= 0:
        raise PipelineError(f"{name} must be a duration such as 30s, 5m or 1h, not {quoted(text)}")
    return length


def parse_rules(text: str) -> dict[str, int]:
    """Limits such as `wait=30s,e2e=5m`, in ms by rule.

    Raises:
        PipelineError: There is no such rule, or its limit is not a duration.
    """
    rules = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        rule, _, limit = part.partition("=")
        if rule.strip() not in ("wait", "run", "e2e"):
            raise PipelineError(
                f"'{part}' is not a limit; write wait=30s (until the first claim), run=1m (of one "
                "lease) or e2e=5m (until the job ends), with commas between"
            )
        rules[rule.strip()] = parse_duration(limit, f"the limit of {rule.strip()}")
    return rules
