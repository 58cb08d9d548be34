"""A report of the day before, every night at three in Berlin: a task with a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from logqueue import App, Cron, Retry, current_job

ZONE = "Europe/Berlin"

app = App()


@app.task(
    queue="reports",
    name="nightly",
    # The key: a night that is still waiting when the next one comes is replaced by it.
    schedule=Cron("0 3 * * *", tz=ZONE, key="nightly"),
    retry=Retry(max_attempts=5),
)
def write_report() -> None:
    """Write the report of the day before the firing, however late it runs, or how often."""
    fired = datetime.fromtimestamp(current_job().meta["scheduled_for"] / 1000, UTC)
    day = (fired.astimezone(ZoneInfo(ZONE)) - timedelta(days=1)).date()
    Path(f"report-{day}.txt").write_text(f"What happened on {day}\n")
