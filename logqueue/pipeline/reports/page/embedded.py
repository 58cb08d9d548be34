"""The data that the page's script draws from: charts over time in finer steps, as JSON.

Owns: which series are in it, how they are packed, how much at most. Must not know: how the script
draws them, HTML.

Whatever is left out is counted in `left_out`, and the script says so. All texts are data: the page
never makes markup of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logqueue.pipeline.reports.charts import Line
from logqueue.pipeline.reports.page.figures import HIGHEST, NULL, SUMMED, Figures
from logqueue.pipeline.reports.page.markup import clean
from logqueue.pipeline.reports.page.series import ALL, KINDS, PERCENTILES
from logqueue.pipeline.reports.page.steps import MOST_STEPS, Values

NUMBERS_MAX = 150_000
"""Values of charts of topics; more steps of time for fewer topics."""
STEPS_MAX = 1440
NAMES_MAX = 500
"""Topics that can be chosen."""
TOPICS_MAX = 50
"""Topics with charts."""
WORKERS_MAX, TAGS_MAX, PAIRS_MAX = 150, 80, 1000
"""Workers of a topic, tags of a topic and pairs of both, those with the most leases."""
HEAT_TOPICS_MAX, HEAT_CELLS_MAX = 12, 40_000
_PER_TOPIC = 20
"""About as many values of a topic in each step."""
_CALLED = {"claims": SUMMED, "acks": SUMMED, "failures": SUMMED}

Names = dict[str, dict[str, int]]


def names_of(figures: Figures, topics: Sequence[str]) -> tuple[Names, dict[str, int]]:
    """What a page can be filtered by: topics, workers and tags with their places; and how many of
    each cannot be chosen, those with the fewest jobs or leases."""
    found: Names = {"topic": {topic: n for n, topic in enumerate(topics[:NAMES_MAX])}}
    left = {"topic": max(len(topics) - NAMES_MAX, 0)}
    for kind, table in (("worker", "report_workers"), ("tag", "report_tags")):
        claims: dict[str, float] = {}
        for row in figures.whole_range(table):
            # Jobs without a tag are not jobs of a tag with the name None.
            if row[kind] is not None:
                claims[row[kind]] = claims.get(row[kind], 0) + (row["claims"] or 0)
        ordered = sorted(claims, key=lambda name: (-claims[name], name))
        limit = WORKERS_MAX if kind == "worker" else TAGS_MAX
        found[kind] = {name: n for n, name in enumerate(ordered[:limit])}
        left[kind] = max(len(ordered) - limit, 0)
    return found, left


def data_of(
    figures: Figures,
    topics: Sequence[str],
    names: Mapping[str, Mapping[str, int]],
    unnamed: Mapping[str, int],
    zone: str,
) -> dict[str, Any]:
    """The data of a page.

    Args:
        figures: Its numbers.
        topics: All topics, the busiest first.
        names, unnamed: As `names_of` gives them.
        zone: The time zone that the page opens with.
    """
    drawn = topics[:TOPICS_MAX]
    most = NUMBERS_MAX // (_PER_TOPIC * (len(drawn) + 1))
    fine = figures.in_steps(min(max(most, MOST_STEPS), STEPS_MAX))
    coarse = figures.in_steps(MOST_STEPS)
    workers, workers_left = _parts(coarse, "worker", names)
    tags, tags_left = _parts(coarse, "tag", names)
    heat, heat_left = _heat(coarse, topics)
    left_out = {
        "topics": len(topics) - len(drawn),
        "workers": workers_left,
        "tags": tags_left,
        "heat": heat_left,
        **{f"{kind}_names": count for kind, count in unnamed.items()},
    }
    return {
        "zone": zone,
        **_axis(fine),
        "bucket": fine.steps.bucket,
        "topics": len(topics),
        "drawn": len(drawn),
        "names": {kind: [clean(name) for name in of] for kind, of in names.items()},
        "charts": _charts(fine, drawn),
        "parts": {**_axis(coarse), "worker": workers, "tag": tags},
        "pairs": _pairs(figures, names),
        "heat": {**_axis(coarse), "cells": heat},
        "left_out": {what: count for what, count in left_out.items() if count},
    }


def script_text(data: Mapping[str, Any]) -> str:
    """The data as JSON that is safe inside an element of a page, and the same for the same data."""
    made = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return made.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _axis(figures: Figures) -> dict[str, int]:
    steps = figures.steps
    return {"start": steps.start, "width": steps.width, "count": steps.count}


def _charts(figures: Figures, topics: Sequence[str]) -> dict[str, Any]:
    places = {ALL: -1} | {topic: n for n, topic in enumerate(topics)}
    made = {}
    for kind in KINDS:
        found = kind.lines(figures, topics)
        made[kind.name] = {
            "title": kind.title,
            "unit": kind.unit,
            "empty": kind.empty,
            "axis": "duration" if kind.axis.is_duration else "count",
            "log": kind.axis.may_be_logarithmic,
            "of": [
                [places[topic], _line_data(lines)]
                for topic, lines in found.items()
                if topic in places and lines
            ],
        }
    return made


def _line_data(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [
        {
            "name": clean(line.name),
            "look": line.look,
            "form": line.form,
            "values": packed(line.values),
        }
        for line in lines
    ]


def packed(values: Values) -> Any:
    """Values as a list, or where most are missing or zero as places and values.

    Returns:
        A list of numbers and nulls, or `{"n": length, "i": places, "v": values, "z": filler}`.
    """
    zeros = sum(1 for value in values if value == 0)
    nulls = sum(1 for value in values if value is None)
    filler = 0 if zeros >= nulls else None
    whole = [_number(value) for value in values]
    places = [n for n, value in enumerate(whole) if value != filler]
    if 2 * len(places) > len(whole):
        return whole
    return {"n": len(whole), "i": places, "v": [whole[n] for n in places], "z": filler}


def _number(value: float | None) -> float | int | None:
    if value is None or value != value or abs(value) == float("inf"):
        return None
    return int(value) if value == int(value) else round(value, 2)


def _parts(
    figures: Figures, kind: str, names: Mapping[str, Mapping[str, int]]
) -> tuple[list[dict[str, Any]], int]:
    """What each worker or tag did in each topic over time; how many are left out."""
    table = "report_workers" if kind == "worker" else "report_tags"
    limit = WORKERS_MAX if kind == "worker" else TAGS_MAX
    pairs = [
        (-(row["claims"] or 0), row["topic"], row[kind])
        for row in figures.whole_range(table)
        if row[kind] is not None
    ]
    chosen = [
        (topic, name)
        for _, topic, name in sorted(pairs)
        if names["topic"].get(topic, TOPICS_MAX) < TOPICS_MAX and name in names[kind]
    ][:limit]
    how = {**_CALLED, **({"p95_run": HIGHEST} if kind == "worker" else {"appended": SUMMED})}
    found = figures.over_time(table, ["topic", kind], how, chosen)
    latency = _latency_by_tag(figures, chosen) if kind == "tag" else {}
    rows: list[dict[str, Any]] = []
    for key in chosen:
        row: dict[str, Any] = {"topic": names["topic"][key[0]], "of": names[kind][key[1]]}
        row |= {column: packed(values) for column, values in found.get(key, {}).items()}
        if len(row) > 2:
            rows.append(row | latency.get(key, {}))
    return rows, len(pairs) - len(chosen)


def _latency_by_tag(
    figures: Figures, chosen: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, Any]]:
    how = dict.fromkeys(PERCENTILES, HIGHEST)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    by = ["topic", "tag", "metric"]
    series_of = figures.over_time("report_latency_by_tag", by, how, chosen)
    for (topic, tag, metric), series in series_of.items():
        if metric in ("wait", "run"):
            mine = found.setdefault((topic, tag), {})
            mine[metric] = [packed(series[name]) for name in PERCENTILES]
    return found


def _pairs(figures: Figures, names: Mapping[str, Mapping[str, int]]) -> list[list[int | None]]:
    """What a worker did with a tag over the whole range: topic, worker, tag, then counts."""
    rows = figures.rows("report_workers_by_tag", order=[("claims", "descending")], most=PAIRS_MAX)
    counts = ("claims", "acks", "failures", "p95_run")
    return [
        [*(names[kind][row[kind]] for kind in names), *(row[column] for column in counts)]
        for row in rows
        if all(row[kind] in names[kind] for kind in names)
    ]


def _heat(figures: Figures, topics: Sequence[str]) -> tuple[list[list[Any]], int]:
    """Cells of the histograms over time: topic, metric, from, to, then steps and counts."""
    kinds = ["topic", "metric", "from_ms", "to_ms"]
    places = {topic: n for n, topic in enumerate(topics[:HEAT_TOPICS_MAX])}
    cells: list[list[Any]] = []
    size = 0
    left = set(topics[HEAT_TOPICS_MAX:])
    of = [(topic,) for topic in places]
    found = figures.over_time("report_heatmap", kinds, {"n": SUMMED}, of)
    for (topic, metric, low, high), series in _ordered(found, places):
        if metric not in ("wait", "run"):
            continue
        steps = [n for n, value in enumerate(series["n"]) if value]
        if topic not in places or size + len(steps) > HEAT_CELLS_MAX:
            left.add(topic)
            continue
        size += len(steps)
        counts = [_number(series["n"][n]) for n in steps]
        cells.append([places[topic], metric, _edge(low), _edge(high), steps, counts])
    return cells, len(left)


def _edge(text: str) -> int | None:
    return int(float(text)) if text != NULL else None


def _ordered(
    found: Mapping[tuple[str, ...], dict[str, Values]], places: Mapping[str, int]
) -> Iterator[tuple[tuple[str, ...], dict[str, Values]]]:
    yield from sorted(
        found.items(),
        key=lambda item: (places.get(item[0][0], len(places)), item[0][1], _edge(item[0][2]) or 0),
    )
