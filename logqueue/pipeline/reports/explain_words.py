"""Findings in words: one plain sentence for each.

Owns: the sentences. Must not know: how findings are made, HTML, time zones (times are columns).
"""

from __future__ import annotations

from logqueue.pipeline.reports.contribution import Contribution, Question
from logqueue.pipeline.reports.page import numbers

NAME_MAX = 120


def sentence(finding: Contribution) -> str:
    """What happened and what accounts for it."""
    question = finding.question
    if question.is_whole:
        return f"{_name(question.topic)}: {_of_the_whole_range(finding)}"
    return f"{_name(question.topic)}: {_symptom(question)}. {_cause(finding)}"


def _name(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= NAME_MAX else whole[:NAME_MAX] + "…"


def _quoted(text: str) -> str:
    return f"“{_name(text)}”"


def _stretch(question: Question) -> str:
    return numbers.span(question.until - question.since)


def _symptom(question: Question) -> str:
    value, usual = question.symptom_value, question.symptom_usual
    within = _stretch(question)
    if question.symptom == "failures":
        return (
            f"{numbers.count(value)} leases failed within {within}, "
            f"usually {numbers.count(round(usual))}"
        )
    if question.symptom == "runs":
        return (
            f"runs took {numbers.duration(question.inside.mean)} on average for {within}, "
            f"usually {numbers.duration(question.outside.mean)}"
        )
    if question.symptom == "waits":
        return (
            f"jobs waited {numbers.duration(value)} on average for {within}, "
            f"usually {numbers.duration(usual)}"
        )
    return f"the backlog grew by {numbers.count(value)} jobs within {within}"


def _cause(finding: Contribution) -> str:
    question = finding.question
    if finding.cause == "missing":
        return (
            f"No lease went to {_quoted(finding.value)} then, which usually has "
            f"{_share(finding.share)} of the claims."
        )
    if question.metric == "arrivals":
        more = (
            f"{numbers.count(question.inside.n)} jobs arrived, "
            f"usually {numbers.count(round(question.usual))}"
        )
        if finding.cause == "arrivals":
            return f"{more}; the increase is not due to a single tag or key."
        return (
            f"{more}: {_who(finding)} accounts for {_share(finding.share)} of the increase"
            f"{_of_traffic(finding)}."
        )
    what = "failures" if question.metric == "failures" else "slow runs"
    if finding.cause == "outcome":
        return (
            f"Leases that ended as {finding.value.replace('_', ' ')}, without an error, account "
            f"for {_share(finding.share)} of the increase, across workers, tags and keys."
        )
    if finding.cause == "error":
        return (
            f"The error {_quoted(finding.value)} accounts for {_share(finding.share)} of the "
            "increase, across workers, tags and keys."
        )
    text = (
        f"{_start(_who(finding))} accounts for "
        f"{_share(finding.share)} of the additional {what}{_of_traffic(finding)}"
    )
    if question.metric == "runs" and question.symptom != "runs":
        text += (
            f"; runs took {numbers.duration(question.inside.mean)} on average, "
            f"usually {numbers.duration(question.outside.mean)}"
        )
    return text + _with_error(finding) + "."


def _of_the_whole_range(finding: Contribution) -> str:
    mine, others = finding.inside, finding.others
    if finding.question.metric == "runs":
        return (
            f"{_who(finding)} is slow: its runs take {numbers.duration(mine.mean)} on average, "
            f"those of the others {numbers.duration(others.mean)}."
        )
    return (
        f"{_who(finding)} accounts for {_share(finding.share)} of all failures"
        f"{_of_traffic(finding)}: {_share(mine.rate)} of its leases failed, "
        f"{_share(others.rate)} of the others{_with_error(finding)}."
    )


def _who(finding: Contribution) -> str:
    return f"{finding.cause} {_quoted(finding.value)}"


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]


def _share(share: float) -> str:
    return numbers.share(min(share, 1.0))


def _of_traffic(finding: Contribution) -> str:
    what = {"arrivals": "jobs", "runs": "runs"}.get(finding.question.metric, "leases")
    usually = "usually " if finding.question.metric == "arrivals" else ""
    return f" with {usually}{_share(finding.traffic)} of the {what}"


def _with_error(finding: Contribution) -> str:
    return f", most with {_quoted(finding.error)}" if finding.error else ""
