"""What a reader of the page can set: topic, worker, tag, range of time, time zone; and checks.

Owns: the controls without their choices, which the script fills in. Must not know: charts.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError

CONTROLS = (
    '<div class="controls" role="group" aria-label="What is shown" hidden><div class="in">'
    + "".join(
        f'<label>{name} <select id="by-{name.lower()}"></select></label>'
        for name in ("Topic", "Worker", "Tag")
    )
    + "".join(
        f'<label>{name} <input type="datetime-local" id="{place}"></label>'
        for name, place in (("From", "from"), ("Until", "until"))
    )
    + '<button type="button" id="whole">Whole range</button>'
    '<label>Zone <select id="zone"></select></label></div>'
    '<p id="chosen" role="status"></p></div>'
)
"""Hidden until the script runs."""


def checked_zone(name: str) -> str:
    """The name of a time zone.

    Raises:
        PipelineError: There is no such zone.
    """
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return name
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as failure:
        raise PipelineError(
            f"unknown time zone {quoted(name)}: use a name such as Europe/Berlin or UTC "
            "(where this machine has no time zones: pip install tzdata)"
        ) from failure
    return name


def checked_address(url: str) -> str:
    """The address of a dashboard without what follows the host's path.

    Raises:
        PipelineError: It is not one of HTTP.
    """
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_fine = False
    if not is_fine:
        raise PipelineError(
            f"invalid address of a dashboard {quoted(url)}: use one such as http://127.0.0.1:4000"
        )
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix('/ui')}"
