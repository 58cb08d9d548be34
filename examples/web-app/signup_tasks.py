"""What the web application leaves to workers."""

from __future__ import annotations

import os
from pathlib import Path

from logqueue import App, Retry

app = App()  # LOGQUEUE_URL and LOGQUEUE_TOKEN say where


@app.task(queue="signups", retry=Retry(max_attempts=10, first=1.0, cap=300.0), timeout=30)
def send_welcome(mail: str) -> None:
    """Send the mail. It may run twice, so a second time writes the same."""
    folder = Path(os.environ.get("MAIL_DIR", "mail"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{mail}.txt").write_text(f"To: {mail}\n\nWelcome!\n")
