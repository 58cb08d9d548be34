"""The files of the dashboard: what is sent, how it is cached, and what a browser may do with it."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

from logqueue import vendored
from logqueue.server.auth import parse_keys
from logqueue.server.settings import Settings
from logqueue.testing.core import Exchange
from tests.server.lines import Line, turns
from tests.server.memory import Memory
from tests.server.test_pages import ask, on_a_loop, served

UI = files("logqueue.server.pages") / "ui"


def file_of(path: str) -> Traversable:
    """The file at a path below `/ui/`."""
    is_vendored = path.startswith("vendor/")
    return vendored.folder() / path.removeprefix("vendor/") if is_vendored else UI / path


HTML = (b"accept", b"text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
GZIP = (b"accept-encoding", b"gzip, deflate, br")


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """One server for all."""
    server = Memory()
    yield server
    server.close()


@pytest.fixture
def get(memory: Memory) -> Callable[..., Exchange]:
    """Sends a request for a path."""
    return lambda path, *headers, **more: ask(memory, path.encode(), *headers, **more)


def fields(exchange: Exchange) -> dict[str, str]:
    """The headers of a reply."""
    return {name.decode(): value.decode() for name, value in exchange.headers}


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/ui/", "text/html; charset=utf-8"),
        ("/ui/main.js", "text/javascript; charset=utf-8"),
        ("/ui/style/base.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
        ("/ui/vendor/vendor.json", "application/json"),
        ("/ui/vendor/uplot.LICENSE", "text/plain; charset=utf-8"),
    ],
)
def test_files_have_their_type(get: Callable[..., Exchange], path: str, media_type: str) -> None:
    exchange = get(path)
    found = fields(exchange)
    assert (exchange.status, found["content-type"]) == (200, media_type)
    assert found["x-content-type-options"] == "nosniff"
    name = path.removeprefix("/ui/") or "index.html"
    assert exchange.take() == file_of(name).read_bytes()


def test_a_browser_may_load_and_reach_nothing_else(get: Callable[..., Exchange]) -> None:
    for path in ("/ui/", "/ui", "/ui/main.js", "/ui/queues/x", "/ui/vendor/none.js"):
        found = fields(get(path))
        policy = found["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert found["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in found


def test_files_are_sent_compressed_to_those_who_take_it(get: Callable[..., Exchange]) -> None:
    plain, packed = get("/ui/api.js"), get("/ui/api.js", GZIP)
    assert "content-encoding" not in fields(plain)
    assert fields(packed)["content-encoding"] == "gzip"
    assert fields(plain)["vary"] == fields(packed)["vary"] == "accept-encoding"
    assert fields(plain)["etag"] != fields(packed)["etag"]
    assert gzip.decompress(packed.take()) == plain.take()
    refused = get("/ui/api.js", (b"accept-encoding", b"gzip;q=0, identity"))
    assert "content-encoding" not in fields(refused)


def test_a_file_that_the_client_has_is_not_sent_again(get: Callable[..., Exchange]) -> None:
    tag = fields(get("/ui/api.js", GZIP))["etag"].encode()
    for known in (tag, b"W/" + tag, b'"x", ' + tag, b"*"):
        again = get("/ui/api.js", GZIP, (b"if-none-match", known))
        assert (again.status, again.take()) == (304, b"")
        assert fields(again)["etag"].encode() == tag
        assert fields(again)["cache-control"] == "no-cache"
    assert get("/ui/api.js", (b"if-none-match", b'"x"')).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/ui/queues/mails",
        "/ui/queues/a%2Fb/jobs/7",
        "/ui/queues/main.js",
        "/ui/nothing",
        "/ui/%2e%2e/%2e%2e/application.py",
        "/ui/../application.py",
        "/ui//etc/passwd",
        "/ui/..%2f..%2fapplication.py",
        "/ui/%00",
        "/ui/INDEX.HTML",
    ],
)
def test_every_other_path_is_the_page(get: Callable[..., Exchange], path: str) -> None:
    exchange = get(path)
    assert exchange.status == 200
    assert exchange.take() == UI.joinpath("index.html").read_bytes()


@pytest.mark.parametrize(
    "path", ["/ui/parts/none.js", "/ui/vendor/../main.js", "/ui/style/..%2f..%2fapplication.py"]
)
def test_a_missing_file_is_not_the_page(get: Callable[..., Exchange], path: str) -> None:
    """A module that is not there must not be parsed as one."""
    exchange = get(path)
    assert exchange.status == 404
    assert fields(exchange)["content-type"].startswith("text/plain")


def test_methods_and_the_short_path(get: Callable[..., Exchange]) -> None:
    assert (get("/ui").status, fields(get("/ui"))["location"]) == (307, "/ui/")
    head = get("/ui/main.js", method="HEAD")
    assert (head.status, head.take()) == (200, b"")
    refused = get("/ui/main.js", method="POST")
    assert (refused.status, fields(refused)["allow"]) == (405, "GET, HEAD")
    assert get("/UI/").status == 404 and get("/uix").status == 404


@pytest.mark.parametrize(
    ("accept", "place"),
    [
        (HTML, "/ui/"),
        ((b"accept", b"*/*"), "/docs"),
        ((b"accept", b"application/json"), "/docs"),
        ((b"x", b"y"), "/docs"),
    ],
)
def test_the_root_leads_people_to_the_dashboard(
    get: Callable[..., Exchange], accept: tuple[bytes, bytes], place: str
) -> None:
    exchange = get("/", accept)
    assert (exchange.status, fields(exchange)["location"]) == (307, place)
    assert fields(exchange)["vary"] == "accept"


def test_a_server_without_dashboard() -> None:
    assert Settings.load({}, {"LOGQUEUE_NO_UI": "1"}).no_ui
    table = served(no_ui=True).router
    for path in (b"/ui", b"/ui/", b"/ui/main.js"):
        assert table.match("GET", path).route is None

    async def scenario() -> None:
        line = Line(served(no_ui=True))
        line.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n")
        await turns(50)
        assert b"location: /docs\r\n" in line.read()
        line.hang_up()

    on_a_loop(scenario)


# -- the files themselves ----------------------------------------------------------------------


def texts(*endings: str) -> Iterator[tuple[str, str]]:
    """Our own files with these endings, by name."""
    for folder in (UI, *(UI / name for name in ("parts", "pages", "queue", "style"))):
        for entry in folder.iterdir():
            if entry.is_file() and entry.name.endswith(endings):
                yield f"{folder.name}/{entry.name}", entry.read_text(encoding="utf-8")


def test_vendored_files_are_those_of_their_table() -> None:
    table = json.loads(vendored.text("vendor.json"))
    there = {entry.name for entry in vendored.folder().iterdir()}
    listed = {"vendor.json"}
    for row in table:
        assert set(row) >= {"name", "version", "licence", "source"}
        content = vendored.folder().joinpath(row["file"]).read_bytes()
        assert sha256(content).hexdigest() == row["sha256"], row["file"]
        listed |= {row["file"], *row["licence_files"]}
    assert there == listed


def test_nothing_is_loaded_from_elsewhere_or_written_into_pages() -> None:
    for name, text in texts(".js", ".html", ".css", ".svg"):
        urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not urls, name
        for what in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert what not in text, f"{name}: {what}"
        assert "dangerouslySetInnerHTML" not in text, name
        assert not re.search(r"""\son[a-z]+=["']|\sstyle=["']""", text), f"{name}: inline"


def test_every_import_is_a_file() -> None:
    for name, text in texts(".js"):
        folder = "" if name.startswith("ui/") else name.partition("/")[0] + "/"
        for wanted in re.findall(r"""(?:from|import\() ?["'](\.[^"']+)["']""", text):
            is_above = wanted.startswith("../")
            path = wanted[3:] if is_above else folder + wanted.removeprefix("./")
            assert file_of(path).is_file(), f"{name}: {wanted}"
    index = (UI / "index.html").read_text()
    for path in re.findall(r'(?:href|src)="/ui/([^"]+)"', index):
        assert file_of(path).is_file(), path


def modules_of(*starts: str) -> set[str]:
    """Modules and all that they import, but for what is imported on demand."""
    found = set(starts)
    waiting = list(starts)
    while waiting:
        path = waiting.pop()
        folder = path.rpartition("/")[0]
        for wanted in re.findall(r'from "(\.[^"]+)"', file_of(path).read_text()):
            name = wanted.removeprefix("../").removeprefix("./")
            name = name if wanted.startswith("../") or not folder else f"{folder}/{name}"
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def named_by_index() -> set[str]:
    """The files that the index names."""
    return set(re.findall(r'(?:href|src)="/ui/([^"]+)"', (UI / "index.html").read_text()))


def test_the_first_load_is_small() -> None:
    first = {"index.html", *named_by_index(), *modules_of("main.js", "pages/overview.js")}
    packed = sum(len(gzip.compress(file_of(path).read_bytes(), 9)) for path in first)
    assert packed <= 150_000 and len(first) > 20


def test_no_module_of_the_first_load_waits_for_another() -> None:
    early = (UI / "early.js").read_text()
    preloaded = {f"{name}.js" for name in re.findall(r'"((?:[a-z_]+/)?[a-z_]+)"', early)}
    missing = modules_of("main.js", "pages/overview.js") - preloaded - named_by_index()
    assert not missing
    unneeded = {path for path in named_by_index() if path.endswith(".js")} - {"early.js"}
    assert unneeded <= modules_of("main.js", "pages/overview.js")


def classes_of(sheet: str) -> set[str]:
    """The classes that rules of a style sheet begin with."""
    rules = re.sub(r"/\*.*?\*/", "", (UI / "style" / sheet).read_text(), flags=re.DOTALL)
    selectors = re.findall(r"(?:^|[{},])\s*([^{},@]+)(?=[,{])", rules)
    return {found[1] for one in selectors if (found := re.match(r"\.([\w-]+)", one.strip()))}


def test_style_sheets_of_pages_do_not_meet() -> None:
    """All of them are loaded: a class of two pages would look different on one of them."""
    shared = {"base.css", "parts.css"}
    of_all = set.union(*map(classes_of, shared))
    seen: dict[str, str] = {}
    for sheet in sorted(entry.name for entry in (UI / "style").iterdir()):
        if sheet not in shared:
            for name in classes_of(sheet) - of_all:
                assert seen.setdefault(name, sheet) == sheet, f".{name}: {sheet}, {seen[name]}"


def test_the_dashboard_needs_no_key() -> None:
    async def scenario() -> None:
        line = Line(served(api_keys=parse_keys("secret")))
        line.send(b"GET /ui/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if line.written:
                break
        assert line.read().startswith(b"HTTP/1.1 200 ")
        line.hang_up()

    on_a_loop(scenario)
