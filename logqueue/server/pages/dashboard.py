"""The dashboard: static files below `/ui/`, and one page for every other path there.

Owns: which files there are, how they are compressed and cached, the headers that bound what a
browser does with them. Must not know: what the pages show; they call the public API.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from logqueue import vendored

INDEX = "index.html"
COMPRESSED_BYTES_MIN = 512
"""Shorter files are sent as they are."""

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
"""By the last part of the file's name."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class Asset(NamedTuple):
    """One file in memory.

    Attributes:
        content: Its bytes.
        compressed: The same with gzip; None where that saves nothing.
        etag: Of the content, quoted.
        media_type: Its content type.
    """

    content: bytes
    compressed: bytes | None
    etag: str
    media_type: str


class Assets:
    """The files of the dashboard, read and compressed once, when first asked for.

    Paths are looked up in a dictionary, never opened, so none leads out of the folder.
    """

    def __init__(self, folder: Traversable | None = None) -> None:
        """Files of a folder, and below `vendor/` those of other projects.

        Args:
            folder: Where they are; None for those of the package.
        """
        self._folder = folder if folder is not None else files(__package__) / "ui"
        self._reading: asyncio.Future[dict[str, Asset]] | None = None

    async def find(self, path: str) -> Asset | None:
        """The file at a path below `/ui/`.

        Returns:
            The index for every path that is neither a file nor in a folder of files; None for a
            file that is missing in such a folder.
        """
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(None, self._read)
        assets = await asyncio.shield(self._reading)
        found = assets.get(path)
        if found is None and not any(
            name.startswith(path.partition("/")[0] + "/") for name in assets
        ):
            found = assets[INDEX]
        return found

    def _read(self) -> dict[str, Asset]:
        return dict([*read_assets(self._folder), *read_assets(vendored.folder(), "vendor/")])


def read_assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    """Every file below a folder, by its path relative to it.

    Raises:
        KeyError: A file has a type that is not in `CONTENT_TYPES`.
    """
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from read_assets(entry, f"{prefix}{entry.name}/")
            continue
        content = entry.read_bytes()
        packed = None
        if len(content) >= COMPRESSED_BYTES_MIN:
            # No time of compression in it: the same file has the same bytes everywhere.
            packed = gzip.compress(content, 9, mtime=0)
            packed = packed if len(packed) < len(content) else None
        etag = f'"{sha256(content).hexdigest()[:32]}"'
        media_type = CONTENT_TYPES[entry.name.rpartition(".")[2]]
        yield prefix + entry.name, Asset(content, packed, etag, media_type)


def routes(assets: Assets) -> list[Route]:
    """The routes of the dashboard."""

    async def file(request: Request) -> Response:
        asset = await assets.find(request.path_params["path"])
        if asset is None:
            return Response("there is no such file\n", 404, HEADERS, "text/plain")
        return reply(asset, request)

    async def start(request: Request) -> Response:
        return RedirectResponse("/ui/", headers=HEADERS)

    return [Route("/ui", start), Route("/ui/{path:path}", file)]


def reply(asset: Asset, request: Request) -> Response:
    """The reply with a file, compressed if the client takes it, or 304 if the client has it."""
    headers = {**HEADERS, "etag": asset.etag, "vary": "accept-encoding"}
    content = asset.content
    if asset.compressed is not None and _accepts(request, "accept-encoding", "gzip"):
        content = asset.compressed
        headers["content-encoding"] = "gzip"
        headers["etag"] = asset.etag[:-1] + '-gzip"'
    known = request.headers.get("if-none-match", "")
    # A client may send the tag of either form, weak or not: they have the same content.
    tags = [tag.strip().removeprefix("W/").replace("-gzip", "") for tag in known.split(",")]
    if asset.etag in tags or known.strip() == "*":
        headers.pop("content-encoding", None)
        return Response(None, 304, headers)
    return Response(content, 200, headers, asset.media_type)


def prefers_pages(request: Request) -> bool:
    """Whether the client is a browser that shows pages, rather than a program."""
    return _accepts(request, "accept", "text/html")


def _accepts(request: Request, header: str, wanted: str) -> bool:
    """Whether a header of accepted forms names one, and not with a weight of 0."""
    for part in request.headers.get(header, "").lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name == wanted:
            weight = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
            return weight.strip("0.") != ""
    return False
