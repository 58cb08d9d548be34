"""The section with the results of a simulation, where the report has any.

Owns: how the table `report_what_if` is shown. Must not know: how it was made.
"""

from __future__ import annotations

from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.markup import foreign, table
from logqueue.pipeline.reports.page.view import NEITHER, PageView, Section, flag, panel

MOST_ROWS = 50


def what_if(view: PageView) -> Section | None:
    """What would have been with other workers or another load; None when nothing was simulated."""
    rows = view.figures.rows("report_what_if", most=MOST_ROWS)
    if not rows:
        return None
    names = list(rows[0])
    is_number = {name: isinstance(rows[0][name], (int, float)) for name in names}
    made = table(
        [("#" if is_number[name] else "") + name.replace("_", " ") for name in names],
        (
            [_cell(name, row[name]) if is_number[name] else foreign(row[name]) for name in names]
            for row in rows
        ),
        caption=view.cut(view.figures.count("report_what_if"), MOST_ROWS, "rows"),
    )
    return Section(
        "what-if",
        "What if",
        "What if there were other workers, or more jobs?",
        flag(NEITHER, "Simulated") + " From the arrivals and run times that were measured.",
        panel("Simulations", made),
    )


def _cell(name: str, value: float | None) -> str:
    return numbers.duration(value) if name.endswith("_ms") else numbers.count(value)
