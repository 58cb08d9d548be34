"""The Starlette application of all pages.

Owns: which pages there are, the headers that bound what a browser does with them. Must not know:
connections, topics. Requests come over ASGI, after the checks of `Host` and `Origin`.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from logqueue.server.pages import dashboard, reference


def application(document: Callable[[], dict[str, Any]], *, has_dashboard: bool = True) -> Starlette:
    """The pages of one server.

    Args:
        document: Gives the OpenAPI document of the server. Called once, when first asked for.
        has_dashboard: Whether the dashboard is served, below `/ui/`.
    """
    rendering: asyncio.Future[str] | None = None

    async def docs(request: Request) -> Response:
        nonlocal rendering
        if rendering is None:
            loop = asyncio.get_running_loop()
            rendering = loop.run_in_executor(None, lambda: reference.render(document()))
        return _page(await asyncio.shield(rendering))

    async def root(request: Request) -> Response:
        is_for_people = has_dashboard and dashboard.prefers_pages(request)
        return RedirectResponse(
            "/ui/" if is_for_people else "/docs", headers={**_HEADERS, "vary": "accept"}
        )

    routes = [Route("/", root), Route("/docs", docs)]
    if has_dashboard:
        routes += dashboard.routes(dashboard.Assets())
    return Starlette(routes=routes)


def paths(pages: Starlette) -> list[tuple[str, str]]:
    """Method and pattern of each page; `**` at the end of a pattern is the rest of the path."""
    found = []
    for route in pages.routes:
        assert isinstance(route, Route), "each page has a path of its own"
        pattern = re.sub(r"\{\w+:path\}", "**", route.path)
        found += [(method, pattern) for method in sorted(route.methods or ()) if method != "HEAD"]
    return found


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src {_source(reference.STYLE)}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def _page(text: str) -> Response:
    return HTMLResponse(text, headers=_HEADERS)
