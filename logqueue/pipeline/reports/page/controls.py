"""What a reader of the page can set: topic, worker, tag, range of time, time zone.

Owns: the controls without their choices, which the script fills in. Must not know: charts.
"""

from __future__ import annotations

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
