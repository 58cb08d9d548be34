"""How a report page is shown, as the caller chooses: time zone, and the dashboard it links to.

Owns: these options and their checks. Must not know: the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError


@dataclass(frozen=True)
class PageOptions:
    """Options of a page.

    Attributes:
        zone: The IANA time zone that times are shown in at first, such as Europe/Berlin.
        dashboard: Address of the server whose dashboard shows jobs; "" for no links.
    """

    zone: str = "UTC"
    dashboard: str = ""

    @classmethod
    def of(cls, zone: str = "UTC", dashboard: str = "") -> PageOptions:
        """Options that were checked.

        Raises:
            PipelineError: There is no such zone, or the address is not one of HTTP.
        """
        return cls(checked_zone(zone), checked_address(dashboard))


PLAIN_PAGE = PageOptions()


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
