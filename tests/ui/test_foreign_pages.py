"""What other web pages can do to the server through somebody's browser: nothing.

A page of another origin, and one whose own name was made to resolve to this machine (DNS
rebinding), send every operation that there is, by all means that a browser has. The browser maps
each name below `.example` to this machine; pages of the attacker are made up by the test.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Frame, Page, expect

from logqueue.api.operations import OPERATIONS, KeyPolicy, Operation
from tests.http.api import Api
from tests.http.expect import ok
from tests.http.process import ServerProcess
from tests.ui.problems import Problems

ASK = """async ({base, asks}) => {
  const answers = [];
  for (const {method, path, mode, type} of asks) {
    const hasBody = !["GET", "HEAD"].includes(method);
    const body = hasBody ? '{"records":[{"data":1}],"node":"x"}' : undefined;
    const headers = type ? {"content-type": type} : {};
    try {
      const reply = await fetch(base + path, {
        method, mode, body, headers, credentials: "include", signal: AbortSignal.timeout(10000),
      });
      answers.push([method, path, mode, reply.type, reply.status, await reply.text()]);
    } catch (error) {
      answers.push([method, path, mode, "blocked", 0, ""]);
    }
  }
  return answers;
}"""

SOCKET = """(url) => new Promise((tell) => {
  const socket = new WebSocket(url);
  socket.onopen = () => tell("open");
  socket.onerror = () => tell("refused");
})"""

EVENTS = """(url) => new Promise((tell) => {
  const source = new EventSource(url, {withCredentials: true});
  source.onopen = () => { source.close(); tell("open"); };
  source.onerror = () => { source.close(); tell("refused"); };
})"""

FORM = """({url, type}) => new Promise((tell) => {
  const frame = document.createElement("iframe");
  frame.name = "sink";
  frame.onload = () => tell("loaded");
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {method: "POST", action: url, enctype: type, target: "sink"});
  const field = document.createElement("input");
  Object.assign(field, {name: '{"node":"x","a":"', value: '"}'});
  form.append(field);
  document.body.append(form);
  form.submit();
})"""

FRAME = """(url) => new Promise((tell) => {
  const frame = document.createElement("iframe");
  frame.onload = () => tell("loaded");
  frame.src = url;
  document.body.append(frame);
})"""


def path_of(row: Operation) -> str:
    """A path of an operation, of a queue that is there where it names one."""
    return row.pattern.replace("/*", "/q", 1).replace("*", "1")


OPEN = {path_of(row) for row in OPERATIONS if row.key is not KeyPolicy.REQUIRED}
"""What a server with keys answers without one."""

SECRET = "for-no-other-page"


@pytest.fixture(scope="module", params=[None, "k"], ids=["keyless", "keys"])
def server_key(request: pytest.FixtureRequest) -> str | None:
    """A server that trusts whoever reaches it, and one with a key that no page has."""
    key: str | None = request.param
    return key


@pytest.fixture(scope="module")
def server_settings(server_key: str | None) -> dict[str, str]:
    """With the key, if any."""
    return {"API_KEYS": server_key} if server_key else {}


@pytest.fixture(scope="module", autouse=True)
def jobs(seed: Api) -> None:
    """A queue with a job, whose state must not change."""
    seed.make_queue("q")
    seed.append("q", SECRET)


@pytest.fixture
def unchanged(seed: Api) -> Iterator[None]:
    """Everything on the server is the same afterwards."""
    before = facts(seed)
    yield
    assert facts(seed) == before


def facts(seed: Api) -> Any:
    """Whatever a request could have changed."""
    listed = ok(seed.topics())
    state = ok(seed.state("q", touch="false"))
    jobs = ok(seed.jobs("q"))
    return (
        [(one["topic"], one["head_seq"]) for one in listed["topics"]],
        state["config"],
        state["queue"]["ready"],
        [(job["$seq"], job["state"], job["data"]) for job in jobs["jobs"]],
    )


class EvilPage(BaseHTTPRequestHandler):
    """The page of an attacker, with scripts of the test in it."""

    def do_GET(self) -> None:
        """The same for every path."""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><p>hello")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def evil_port() -> Iterator[int]:
    """A web server on this machine: browsers keep pages of others from local addresses."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EvilPage) as evil:
        thread = threading.Thread(target=evil.serve_forever, daemon=True)
        thread.start()
        yield evil.server_port
        evil.shutdown()
        thread.join()


def requests() -> list[dict[str, str | None]]:
    """Every operation as scripts can send it: with a preflight, or in a form that needs none."""
    found: list[dict[str, str | None]] = []
    for row in OPERATIONS:
        path = path_of(row)
        found.append(
            {"method": row.method, "path": path, "mode": "cors", "type": "application/json"}
        )
        if row.method in ("GET", "HEAD", "POST"):
            found.append({"method": row.method, "path": path, "mode": "no-cors", "type": None})
    return found


def page_of(way: str, server: ServerProcess, evil_port: int) -> str:
    """Where the attacker's page is: another site, another port, a name made to lead here."""
    return {
        "site": f"http://evil.example:{evil_port}/",
        "port": f"http://127.0.0.1:{evil_port}/",
        # Whatever the server answers there, scripts in it have the name's origin.
        "rebound": f"http://rebound.example:{server.port}/v0/nowhere",
    }[way]


def attack(page: Page, base: str, status_wanted: int) -> None:
    """Everything a script can try."""
    address = base.removeprefix("http://")
    asked = page.evaluate(ASK, {"base": base, "asks": requests()})
    for method, path, mode, kind, status, text in asked:
        tried = f"{mode} {method} {path}: {kind} {status} {text[:200]}"
        if kind in ("basic", "cors"):  # it is the page's own name: it reads the refusal
            assert status == status_wanted or path in OPEN, tried
            assert SECRET not in text, tried
        else:
            assert kind in ("blocked", "opaque") and not text, tried
    assert page.evaluate(SOCKET, f"ws://{address}/v0/ws") == "refused"
    for stream in ("/v0/topics/q/work?node=x", "/v0/stats/stream"):
        assert page.evaluate(EVENTS, base + stream) == "refused"
    for enctype in ("text/plain", "application/x-www-form-urlencoded"):
        for verb in ("pause", "claim", "purge"):
            page.evaluate(FORM, {"url": f"{base}/v0/topics/q/{verb}", "type": enctype})


def refusals(seed: Api, status: int) -> float:
    """How many requests the server has refused with a status."""
    text = seed.send("GET", "/v0/metrics").text
    found = re.findall(rf'^logqueue_http_requests_total{{.*"{status}".*}} ([0-9.e+]+)', text, re.M)
    return sum(map(float, found))


@pytest.mark.parametrize("way", ["site", "port", "rebound"])
def test_no_page_of_another_origin_reads_or_changes_anything(
    page: Page,
    server: ServerProcess,
    server_key: str | None,
    seed: Api,
    evil_port: int,
    problems: Problems,
    unchanged: None,
    way: str,
) -> None:
    problems.expect("")
    page.goto(page_of(way, server, evil_port))
    base = f"http://rebound.example:{server.port}" if way == "rebound" else server.base_url
    status = 401 if server_key else 403
    before = refusals(seed, status)
    attack(page, base, status)
    reads = sum(row.is_read for row in OPERATIONS)
    assert refusals(seed, status) > before + reads, "it was the server that refused"
    assert page.context.cookies() == []


def shown(frame: Frame) -> str:
    """What a frame came to show; its address does not say whether it was refused."""
    return frame.content()


@pytest.mark.parametrize("path", ["/ui/", "/docs", "/v0/topics/q/jobs"])
def test_no_page_shows_the_server_in_a_frame(
    page: Page, server: ServerProcess, evil_port: int, problems: Problems, path: str
) -> None:
    problems.expect("")
    page.goto(page_of("site", server, evil_port))
    page.evaluate(FRAME, server.base_url + path)
    content = shown(page.frames[-1])
    assert SECRET not in content and "logqueue" not in content.lower()


def test_a_name_made_to_lead_here_shows_no_page(
    page: Page, server: ServerProcess, server_key: str | None, problems: Problems
) -> None:
    """With keys, pages are for all names: they hold no data."""
    if server_key:
        return
    problems.expect("")
    for path in ("/", "/ui/", "/docs", "/v0/topics"):
        reply = page.goto(f"http://rebound.example:{server.port}{path}")
        assert reply is not None and reply.status == 403
        assert "--allow-host" in reply.text()


def test_a_link_from_elsewhere_opens_a_page(
    page: Page, server: ServerProcess, evil_port: int, problems: Problems
) -> None:
    """Such as from a chat. With keys, the page asks for one."""
    problems.expect("401")
    page.goto(page_of("site", server, evil_port))
    page.evaluate(
        """(url) => {
          const link = document.createElement("a");
          Object.assign(link, {href: url, textContent: "look"});
          document.body.append(link);
        }""",
        f"{server.base_url}/ui/queues/q",
    )
    page.get_by_text("look").click()
    page.wait_for_url("**/ui/queues/q")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
