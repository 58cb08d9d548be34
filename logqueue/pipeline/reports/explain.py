"""What accounts for the worst hours: contribution analysis, and a sentence for each finding.

Owns: which stretches of time are bad, which single value explains them, when evidence is too small
to say so. Must not know: how SQL is run, where tables go, how sentences are shown.

A stretch of time is compared with the rest of the range. Of a worker, tag, key or error it is asked
how much of the excess it brings, compared with its share of the traffic. A worker, tag or key that
is bad all the time is compared with all others. What could be chance is never claimed: an excess
must be large, of several jobs, and `SIGMAS_MIN` standard deviations away from what is usual.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.lifecycle.report_tables import REPORT_EXPLANATIONS
from logqueue.pipeline.reports.contribution import Contribution, EventCounts, Question
from logqueue.pipeline.reports.explain_words import sentence
from logqueue.pipeline.reports.page.numbers import DAY, HOUR, step_above
from logqueue.pipeline.reports.queries import explaining
from logqueue.pipeline.reports.queries.dialect import Dialect
from logqueue.pipeline.reports.queries.sources import ReportScope

if TYPE_CHECKING:
    import pyarrow as pa

Ask = Callable[[str], "pa.Table"]
"""Runs SQL over the relations `$jobs` and `$attempts`, and gives back its few rows."""

SIGMAS_MIN = 6.0
"""Standard deviations; thousands of values are looked at, so that less would be chance."""
SIGMAS_LOOKED_AT = 3.0
"""Of a stretch of time that is looked at; the value that is named must be `SIGMAS_MIN` away."""
EXCESS_MIN = 10
"""Failures or slow runs more than usual below which nothing is said."""
SHARE_MIN = 0.5
"""Of the excess, that one value must bring to be named."""
LIFT_MIN = 2.0
"""How many times as often as among the others."""
SLOWER_MIN, SLOWER_MS_MIN = 1.25, 20
"""How much longer runs must take on average."""
WAIT_TIMES_MIN, WAIT_MS_MIN = 3.0, 1000
"""How much longer jobs must wait on average."""
BURST_MIN = 1.5
"""How many times as many arrivals are a burst."""
COMMON_ERROR_MIN = 0.8
"""Of the failures of a value, that one error must have to be named with it."""
CLAIMS_MISSED_MIN = 20
"""Claims that a missing worker would have made."""
WINDOWS_MAX, CHOSEN_MAX, ROWS_MAX = 24 * 28, 60, 20


def explanations(ask: Ask, scope: ReportScope, dialect: Dialect) -> pa.Table:
    """The table `report_explanations` of a range.

    Args:
        ask: Runs SQL over the run's relations.
        scope: The range.
        dialect: Of the engine that `ask` runs on.
    """
    import pyarrow as pa

    findings = find(ask, scope.start, scope.end, dialect)
    rows = [_row(rank, finding, scope.start, scope.end) for rank, finding in enumerate(findings, 1)]
    return pa.Table.from_pylist(rows, schema=REPORT_EXPLANATIONS.arrow())


def find(ask: Ask, start: int, end: int, dialect: Dialect) -> list[Contribution]:
    """The findings, the most important first."""
    width = width_of(start, end)
    counted = _Counted(ask(explaining.windows(width, end, dialect)).to_pylist(), width, start, end)
    questions = counted.questions()
    if not questions:
        return []
    rows = ask(explaining.contributions(_chosen(questions), end, dialect)).to_pylist()
    by_question: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_question[row["id"]].append(row)
    findings = []
    for place, question in enumerate(questions):
        found = _answer(question, by_question[place])
        if found is not None:
            findings.append(found)
    findings += _missing(ask, dialect, questions, findings, end)
    return _distinct(findings)


def width_of(start: int, end: int) -> int:
    """How long the stretches are that are compared: an hour, or less in short ranges."""
    length = max(end - start, 1)
    if length < 12 * HOUR:
        return step_above(max(length / 24, 1000))
    return max(HOUR, step_above(length / WINDOWS_MAX, HOUR) if length > 28 * DAY else HOUR)


def _chosen(questions: Sequence[Question]) -> list[explaining.Stretch]:
    return [
        explaining.Stretch(place, of.place, of.metric, of.since, of.until)
        for place, of in enumerate(questions)
    ]


class _Counted:
    """What was counted in each stretch, and the questions that it raises."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], width: int, start: int, end: int) -> None:
        self._width, self._start, self._end = width, start, end
        self.topics: dict[int, str] = {}
        self._of: dict[tuple[int, str], dict[int, EventCounts]] = defaultdict(dict)
        for row in rows:
            self.topics[row["place"]] = row["topic"]
            counted = EventCounts(row["n"], row["bad"] or 0, row["ms"] or 0)
            self._of[row["place"], row["metric"]][row["win"]] = counted

    def questions(self) -> list[Question]:
        """The worst stretches of every topic, and the whole range; the worst of all first."""
        found: list[tuple[float, Question]] = []
        for place in self.topics:
            for metric in ("failures", "runs"):
                found += self._whole(place, metric)
                found += self._worst(place, metric)
            found += self._congested(place)
        found.sort(key=lambda item: (-item[0], item[1].place, item[1].since))
        return [question for _, question in found[:CHOSEN_MAX]]

    def _total(self, place: int, metric: str) -> EventCounts:
        windows = self._of[place, metric].values()
        return EventCounts(
            sum(w.n for w in windows), sum(w.bad for w in windows), sum(w.ms for w in windows)
        )

    def _whole(self, place: int, metric: str) -> list[tuple[float, Question]]:
        total = self._total(place, metric)
        if total.bad < EXCESS_MIN:
            return []
        of = (place, self.topics[place], metric, metric, self._start, self._end + 1)
        question = Question(*of, total, EventCounts(), is_whole=True, symptom_value=total.bad)
        return [(float(total.bad), question)]

    def _worst(self, place: int, metric: str) -> list[tuple[float, Question]]:
        """Stretches with far more failures or slow runs than the rest."""
        total = self._total(place, metric)
        found = []
        for at, window in self._of[place, metric].items():
            rest = total.without(window)
            excess = window.bad - window.n * rest.rate
            # One of many workers changes a stretch less than its own numbers; those must be sure.
            if not _is_excess(window, rest.rate, SIGMAS_LOOKED_AT):
                continue
            if metric == "runs" and window.mean - rest.mean < SLOWER_MS_MIN / 4:
                continue
            usual = rest.bad / max(len(self._of[place, metric]) - 1, 1)
            question = Question(
                place, self.topics[place], metric, metric, at, at + self._width, window, rest,
                symptom_value=window.bad, symptom_usual=usual,
            )  # fmt: skip
            found.append((excess, question))
        return sorted(found, key=lambda item: -item[0])[:2]

    def _congested(self, place: int) -> list[tuple[float, Question]]:
        """The stretch with the longest waits and the one in which the backlog grew most, if what
        happened then could be why."""
        found = []
        waits, total = self._of[place, "waits"], self._total(place, "waits")
        if waits:
            at, window = max(waits.items(), key=lambda item: (item[1].mean * sqrt(item[1].n), item))
            rest = total.without(window)
            is_long = window.mean >= max(WAIT_TIMES_MIN * rest.mean, WAIT_MS_MIN)
            if is_long and window.n >= EXCESS_MIN and rest.n >= EXCESS_MIN:
                found += self._causes(place, "waits", at, window.mean, rest.mean)
        growth = self._growth(place)
        if growth:
            at, grown = max(growth.items(), key=lambda item: (item[1], -item[0]))
            usual = self._usual(place, "arrivals")
            if grown >= max(2 * EXCESS_MIN, usual / 2) and grown >= SIGMAS_MIN * sqrt(2 * usual):
                found += self._causes(place, "backlog", at, grown, 0.0)
        return found

    def _growth(self, place: int) -> dict[int, int]:
        came, went = self._of[place, "arrivals"], self._of[place, "ended"]
        return {at: came[at].n - went.get(at, EventCounts()).n for at in came}

    def _usual(self, place: int, metric: str) -> float:
        """How many there are in a stretch, stretches without any included."""
        counted = self._of[place, metric]
        length = max((self._end - self._start) // self._width, len(counted), 1)
        return median([*(w.n for w in counted.values()), *([0] * (length - len(counted)))])

    def _causes(
        self, place: int, symptom: str, at: int, value: float, usual: float
    ) -> list[tuple[float, Question]]:
        """Why jobs wait: more of them, slower runs, or else fewer workers; in this stretch or the
        one before it."""
        of = (place, self.topics[place], symptom)
        ratios: list[tuple[float, float, Question]] = []
        arrivals, runs = self._of[place, "arrivals"], self._of[place, "runs"]
        usually, all_runs = self._usual(place, "arrivals"), self._total(place, "runs")
        for near in (at, at - self._width):
            stretch = (near, near + self._width)
            came = arrivals.get(near, EventCounts())
            excess = came.n - usually
            if (
                came.n >= BURST_MIN * usually
                and excess >= 2 * EXCESS_MIN
                and excess >= SIGMAS_MIN * sqrt(usually + 1)
            ):
                rest = self._total(place, "arrivals").without(came)
                question = Question(*of, "arrivals", *stretch, came, rest, usually)
                ratios.append((came.n / max(usually, 1), excess, question))
            ran = runs.get(near, EventCounts())
            rest = all_runs.without(ran)
            if _is_excess(ran, rest.rate) and _slower(ran, rest):
                question = Question(*of, "runs", *stretch, ran, rest)
                ratios.append((ran.mean / max(rest.mean, 1), ran.bad - ran.n * rest.rate, question))
        if ratios:
            _, weight, question = max(ratios, key=lambda item: item[:2])
            return [(weight, replace(question, symptom_value=value, symptom_usual=usual))]
        claims = self._of[place, "claims"].get(at, EventCounts())
        rest = self._total(place, "claims").without(claims)
        question = Question(*of, "claims", at, at + self._width, claims, rest)
        return [(value, replace(question, symptom_value=value, symptom_usual=usual))]


def _is_excess(window: EventCounts, rate: float, sigmas: float = SIGMAS_MIN) -> bool:
    """Whether far more is bad than at a usual rate."""
    expected = window.n * rate
    excess = window.bad - expected
    return (
        excess >= EXCESS_MIN
        and window.rate >= BURST_MIN * rate
        and excess >= sigmas * sqrt(expected * (1 - rate) + 1)
    )


def _slower(window: EventCounts, rest: EventCounts) -> bool:
    longer = window.mean - rest.mean
    return longer >= SLOWER_MS_MIN and window.mean >= SLOWER_MIN * rest.mean


# -- which value -----------------------------------------------------------------------------------

_SPECIFIC = {"worker": 0, "tag": 1, "key": 2}
"""Of equally good explanations the first is named."""


def _answer(question: Question, rows: Sequence[Mapping[str, Any]]) -> Contribution | None:
    """The value that accounts for the excess, if one does."""
    found = [
        finding
        for row in rows
        if row["dim"] in _SPECIFIC
        for finding in [_contribution(question, row)]
        if finding is not None
    ]
    if found:
        return max(
            found, key=lambda one: (round(one.share - one.traffic, 3), -_SPECIFIC[one.cause])
        )
    if question.metric == "arrivals":
        share = 1.0
        excess = question.inside.n - question.usual
        return Contribution(
            question, "arrivals", share=share, inside=question.inside, weight=excess
        )
    return None if question.is_whole else _common_error(question, rows)


def _contribution(question: Question, row: Mapping[str, Any]) -> Contribution | None:
    """What one worker, tag or key brings; None when that is too little to say so."""
    mine = EventCounts(row["n"], row["bad"], row["ms"])
    ever = EventCounts(row["n_all"], row["bad_all"], row["ms_all"])
    others = question.inside.without(mine)
    traffic = mine.n / question.inside.n if question.inside.n else 0.0
    if question.metric == "arrivals":
        return _of_arrivals(question, row, mine, ever)
    # Stretches are compared with other times, values of the whole range with each other.
    usual = others.rate if question.is_whole else question.outside.rate
    excess = mine.bad - mine.n * usual
    if question.is_whole:
        share = mine.bad / question.inside.bad
        is_enough = excess >= 0.3 * question.inside.bad or question.metric == "runs"
    else:
        whole = question.inside.bad - question.inside.n * usual
        share = min(excess / whole, 1.0) if whole > 0 else 0.0
        is_enough = share >= SHARE_MIN and share >= traffic + 0.2
    is_apart = others.n >= EXCESS_MIN and mine.rate >= LIFT_MIN * others.rate
    if question.metric == "runs":
        is_apart = is_apart and _slower(mine, others)
    if not (_is_excess(mine, usual) and is_enough and is_apart):
        return None
    if question.is_whole and question.metric == "runs":
        # Every tag has its own idea of slow, so of a whole range only workers are compared.
        if row["dim"] != "worker" or mine.ms - mine.n * others.mean < 0.05 * question.inside.ms:
            return None
        share = mine.ms / question.inside.ms
    is_common = row["error"] is not None and row["error_bad"] >= COMMON_ERROR_MIN * mine.bad
    error = row["error"] if is_common else ""
    return Contribution(
        question, row["dim"], row["value"], share, traffic, mine, others, error, excess
    )


def _of_arrivals(
    question: Question, row: Mapping[str, Any], mine: EventCounts, ever: EventCounts
) -> Contribution | None:
    """Whose jobs the burst is made of."""
    excess = question.inside.n - question.usual
    rest = question.outside.n
    before = question.usual * (ever.n - mine.n) / rest if rest else 0.0
    more = mine.n - before
    traffic = (ever.n - mine.n) / rest if rest else 0.0
    share = min(more / excess, 1.0) if excess > 0 else 0.0
    is_far = more >= 2 * EXCESS_MIN and more >= SIGMAS_MIN * sqrt(before + 1)
    if not is_far or share < SHARE_MIN or share < traffic + 0.2:
        return None
    others = question.inside.without(mine)
    return Contribution(
        question, row["dim"], row["value"], share, traffic, mine, others, weight=excess
    )


def _common_error(question: Question, rows: Sequence[Mapping[str, Any]]) -> Contribution | None:
    """The error that most failures of the excess have."""
    if question.metric != "failures" or not _is_excess(question.inside, question.outside.rate):
        return None
    errors = [row for row in rows if row["dim"] in ("error", "outcome")]
    if not errors:
        return None
    row = max(errors, key=lambda one: (one["bad"], one["value"]))
    mine = EventCounts(row["n"], row["bad"], 0)
    before = question.outside
    usual = (row["bad_all"] - row["bad"]) / before.n if before.n else 0.0
    more = mine.bad - question.inside.n * usual
    whole = question.inside.bad - question.inside.n * before.rate
    share = min(more / whole, 1.0) if whole > 0 else 0.0
    if more < EXCESS_MIN or share < SHARE_MIN:
        return None
    return Contribution(question, row["dim"], row["value"], share, share, mine, weight=more)


def _missing(
    ask: Ask,
    dialect: Dialect,
    questions: Sequence[Question],
    found: Sequence[Contribution],
    end: int,
) -> list[Contribution]:
    """Workers that had no lease where jobs waited, and usually have."""
    asked = [question for question in questions if question.metric == "claims"]
    if not asked:
        return []
    rows = ask(explaining.presence(_chosen(asked), end, dialect)).to_pylist()
    findings = []
    for place, question in enumerate(asked):
        mine = [row for row in rows if row["id"] == place]
        everyone = sum(row["n_all"] - row["n"] for row in mine)
        missed = [
            (row["value"], (row["n_all"] - row["n"]) / everyone)
            for row in mine
            if row["n"] == 0
            # Had it come as usual, it would have had its share of the claims.
            and row["n_all"] * question.inside.n >= CLAIMS_MISSED_MIN * everyone
        ]
        share = sum(part for _, part in missed)
        if missed and share >= 0.25:
            names = ", ".join(sorted(name for name, _ in missed)[:3])
            more = f" and {len(missed) - 3} more" if len(missed) > 3 else ""
            weight = question.symptom_value if question.symptom == "backlog" else EXCESS_MIN
            made = Contribution(question, "missing", names + more, share, share, question.inside)
            findings.append(replace(made, weight=weight))
    return findings


def _distinct(findings: Iterable[Contribution]) -> list[Contribution]:
    """One finding for each cause, the most important first: a slow worker makes jobs wait, too."""
    order = {"failures": 0, "runs": 1, "waits": 2, "backlog": 3}
    ranked = sorted(
        findings,
        key=lambda one: (
            one.question.metric == "claims",
            not one.question.is_whole,
            -one.weight,
            order[one.question.symptom],
        ),
    )
    kept: list[Contribution] = []
    for finding in ranked:
        # What is bad all the time is said once; what is bad for some hours, of these.
        if finding.question.is_whole and any(
            other.weight >= finding.weight / 2 and _is_same(finding, other)
            for other in ranked
            if not other.question.is_whole
        ):
            continue
        if not any(_is_same(finding, other) for other in kept):
            kept.append(finding)
    # A name comes before a mere count of arrivals: there is something to look at.
    kept.sort(key=lambda one: (not one.value, -one.weight, one.question.topic, one.question.since))
    return kept[:ROWS_MAX]


def _is_same(one: Contribution, other: Contribution) -> bool:
    if (one.question.place, one.question.metric) != (other.question.place, other.question.metric):
        return False
    is_same_value = (one.cause, one.value) == (other.cause, other.value)
    # Stretches side by side: one burst that lasted longer.
    gap = max(one.question.since, other.question.since) - min(
        one.question.until, other.question.until
    )
    is_near = gap <= 2 * (one.question.until - one.question.since)
    if other.question.is_whole or one.question.is_whole:
        return is_same_value
    return is_near and (is_same_value or one.question.since == other.question.since)


def _row(rank: int, finding: Contribution, start: int, end: int) -> dict[str, Any]:
    question = finding.question
    return {
        "rank": rank,
        "topic": question.topic,
        "from_at": max(question.since, start) * 1000,
        "until_at": min(question.until, end) * 1000,
        "symptom": question.symptom,
        "value": float(question.symptom_value),
        "usual": float(question.symptom_usual),
        "cause": finding.cause,
        "name": finding.value,
        "error": finding.error or None,
        "share": float(finding.share),
        "traffic_share": float(finding.traffic),
        "evidence": finding.inside.bad or finding.inside.n,
        "sentence": sentence(finding),
    }
