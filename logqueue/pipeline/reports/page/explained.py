"""The sentences at the top of the page: what accounts for the worst hours.

Owns: how explanations are listed. Must not know: how they are found.
"""

from __future__ import annotations

from logqueue.pipeline.reports.page.markup import UTC_MARK, foreign, when
from logqueue.pipeline.reports.page.view import PageView

MOST = 20
AT_ONCE = 4
"""Shown without opening the rest."""


def explained(view: PageView) -> str:
    """A list of sentences, the most important first; "" when there are none."""
    rows = view.figures.rows("report_explanations", order=[("rank", "ascending")], most=MOST)
    if not rows:
        return ""
    items = [
        f'<li data-topic="{view.names.get("topic", {}).get(str(row["topic"]), -1)}">'
        f"{foreign(row['sentence'], 600)} "
        f'<span class="soft">{when(row["from_at"])} to {when(row["until_at"])} {UTC_MARK}</span>'
        "</li>"
        for row in rows
    ]
    more = "".join(items[AT_ONCE:])
    rest = ""
    if more:
        summary = f"{len(items) - AT_ONCE} more"
        rest = f"<details><summary>{summary}</summary><ul>{more}</ul></details>"
    return (
        '<section class="explained" aria-labelledby="explained"><h2 id="explained">'
        f"What went wrong, and why</h2><ul>{''.join(items[:AT_ONCE])}</ul>{rest}</section>"
    )
