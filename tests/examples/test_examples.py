"""Every example does what its README says."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from zoneinfo import ZoneInfo

import httpx
import pytest

from logqueue.client import Client
from logqueue.testing.process import ServerProcess
from tests import readme
from tests.effort import scaled
from tests.examples.conftest import END_S, Example
from tests.house import ROOT, page

FOLDERS = (
    "web-app",
    "thumbnails",
    "outbox",
    "orders",
    "nightly-report",
    "mailer",
    "shell",
    "fan-out",
    "celery-sqs",
)
STEPS = ("charge", "ship", "notify")


def of(name: str) -> pytest.MarkDecorator:
    """Give a test this example."""
    return pytest.mark.parametrize("example", [name], indirect=True)


def loaded(path: Path) -> ModuleType:
    """A module of an example, for tests of its parts."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_page_and_is_listed() -> None:
    found = {path.parent.name for path in (ROOT / "examples").glob("*/README.md")}
    assert found == set(FOLDERS)
    for name in FOLDERS:
        assert f"]({name}/README.md)" in page("examples/README.md")


@of("web-app")
def test_the_web_application_answers_at_once_and_the_mail_goes_out(
    example: Example, client: Client
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    example.start("uvicorn", "signup_web:web", "--port", str(port))
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False) as web:
        ends = time.monotonic() + END_S
        while True:
            try:
                reply = web.post("/signups", json={"mail": "ann@example.org"})
                break
            except httpx.ConnectError:
                assert time.monotonic() < ends
                time.sleep(0.05)
    assert reply.status_code == 202 and reply.json() == {"job": 1}
    assert client.topic("signups").count == 1
    example.run("logqueue", "worker", "signup_tasks:app", "--once")
    mail = example.folder / "mail" / "ann@example.org.txt"
    assert mail.read_text().startswith("To: ann@example.org")
    assert client.topic("signups").count == 0


@of("thumbnails")
def test_thumbnails_are_made(example: Example, client: Client) -> None:
    from PIL import Image

    assert example.run("python", "thumbnails.py", "images", "6") == "queued 6 jobs\n"
    (example.folder / "images" / "broken.png").write_text("not an image")
    task = {"task": "make_thumbnail", "args": ["images/broken.png"], "kwargs": {"size": 64}}
    example.run("logqueue", "append", "thumbnails", "--data", json.dumps(task))
    # One job fails for good.
    example.run("logqueue", "worker", "thumbnails:app", "--once", status=1)
    made = sorted((example.folder / "images").glob("*.thumbnail.png"))
    assert len(made) == 6
    for path in made:
        with Image.open(path) as image:
            assert max(image.size) == 128
    assert client.topic("thumbnails").count <= 1


@of("outbox")
def test_the_outbox_sends_each_order_once_whatever_happens(
    example: Example, client: Client
) -> None:
    shop = example.folder / "orders.db"
    example.run("python", "outbox.py", "order", str(shop), "ann", "book")
    example.run("python", "outbox.py", "order", str(shop), "bob", "lamp")
    assert example.run("python", "outbox.py", "relay", str(shop)) == "sent 2 jobs\n"
    assert example.run("python", "outbox.py", "relay", str(shop)) == "sent 0 jobs\n"

    outbox = loaded(example.folder / "outbox.py")
    database = outbox.open_database(str(shop))
    with pytest.raises(ZeroDivisionError), database:
        database.execute("INSERT INTO orders (customer, item) VALUES ('eve', 'nothing')")
        raise ZeroDivisionError
    outbox.place_order(database, "cat", "desk")
    batch = outbox.next_batch(database)
    assert outbox.send(database, client, batch) == 1  # and then it died
    outbox.place_order(database, "dan", "chair")
    assert outbox.relay(database, client) == 2
    database.close()
    jobs = [record.data["item"] for record in client.diff("orders").records]
    assert jobs == ["book", "lamp", "desk", "chair"]


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    ends = time.monotonic() + END_S
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def has_done(book: Path, steps: int) -> bool:
    """Whether so many steps of orders are in the book."""
    with sqlite3.connect(book, timeout=END_S) as database:
        try:
            (found,) = database.execute("SELECT count(*) FROM done").fetchone()
        except sqlite3.OperationalError:
            return False
    return int(found) >= steps


@of("orders")
def test_each_step_of_each_order_is_done_once_whoever_dies(
    example: Example, server: ServerProcess, client: Client
) -> None:
    orders = scaled(60, 2000)
    program = ("python", "orders.py")
    assert example.run(*program, "place", str(orders)) == f"placed {orders} orders\n"
    for steps in (orders // 3, orders, 3 * orders):
        worker = example.start("logqueue", "worker", "orders:app", "--lease", "1s")
        until(partial(has_done, example.folder / "orders.db", steps))
        worker.kill()
        server.kill()
        server.start()
    # The last jobs may have been done, and not acked.
    until(lambda: not any(worker.in_flight for worker in client.workers("orders.notify")))
    example.run("logqueue", "worker", "orders:app", "--once")
    printed = example.run(*program, "check", str(orders))
    assert printed.split() == [w for s in STEPS for w in (s, str(orders), "of", str(orders))]
    topics = [client.topic(f"orders.{step}") for step in STEPS]
    assert [topic.count for topic in topics] == [0, 0, 0]
    assert [topic.head_seq for topic in topics] == [orders] * 3, "one job for each step"


@of("nightly-report")
def test_the_report_is_that_of_the_day_before(example: Example, client: Client) -> None:
    worker = ("logqueue", "worker", "report:app", "--once")
    example.run(*worker)
    schedule = client.schedule("reports.nightly")
    assert (schedule.cron, schedule.timezone) == ("0 3 * * *", "Europe/Berlin")
    assert "reports.nightly" in example.run("logqueue", "schedules", "list")
    example.run("logqueue", "schedules", "run", "reports.nightly")
    example.run("logqueue", "schedules", "run", "reports.nightly")
    assert client.topic("reports").count == 1, "the second replaced the first"
    fired = datetime.fromtimestamp(
        client.diff("reports").records[0].meta["scheduled_for"] / 1000, UTC
    )
    day = (fired.astimezone(ZoneInfo("Europe/Berlin")) - timedelta(days=1)).date()
    example.run(*worker)
    (written,) = example.folder.glob("report-*.txt")
    assert (written.name, written.read_text()) == (f"report-{day}.txt", f"What happened on {day}\n")


@of("mailer")
def test_a_large_tenant_does_not_keep_the_others_waiting(example: Example, client: Client) -> None:
    program = ("python", "mailer.py")
    example.run(*program, "send", "acme", "50")
    example.run(*program, "send", "tiny", "2")
    example.run(*program, "reset", "acme")
    example.run("logqueue", "worker", "mailer:app", "--once")
    until(lambda: client.topic("mail").count == 0)
    sent = (example.folder / "sent.txt").read_text()
    (shown,) = re.findall("```text\n(.*?)```", page("examples/mailer/README.md"), re.DOTALL)
    assert sent.startswith(shown)
    assert sent.count("\n") == 53


def test_the_shell_page_shows_what_the_script_runs() -> None:
    (_, shown) = readme.shell_blocks(page("examples/shell/README.md"))
    script = (ROOT / "examples/shell/run.sh").read_text().splitlines()
    run = [line for line in script if line.startswith("logqueue ")]
    given = {"../../README.md": '"$1"', "./count-words": '"$here/count-words"'}
    assert [
        " ".join(given.get(word, word) for word in command.split()) for command in shown.commands()
    ] == run


@of("shell")
def test_the_shell_pipeline_counts_words(example: Example, client: Client) -> None:
    text = example.folder / "text"
    text.write_text("one two three\n\nfour\n")
    printed = example.run("./run.sh", str(text))
    counts = sorted((json.loads(line) for line in printed.splitlines()), key=lambda c: c["line"])
    assert counts == [{"line": 1, "words": 3}, {"line": 3, "words": 1}]


@of("fan-out")
def test_orders_reach_all_their_readers(example: Example, client: Client) -> None:
    program = ("python", "fan_out.py")
    example.run(*program, "setup")
    example.run(*program, "setup")
    assert example.run(*program, "publish") == "published 3 orders\n"
    seen = example.run(*program, "follow", "5").splitlines()
    assert sorted(seen) == [
        "orders.audit: order 1",
        "orders.audit: order 2",
        "orders.audit: order 3",
        "orders.vip: order 2",
        "orders.vip: order 3",
    ]
    assert client.claim("orders.mail", max=10).count == 3


@of("celery-sqs")
def test_a_celery_project_needs_another_broker_url(
    example: Example, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("celery")
    lines = [
        line
        for block in readme.shell_blocks(page("examples/celery-sqs/README.md"))
        for line in block.commands()
    ]
    export, produce, work = lines[-3:]
    name, _, url = export.removeprefix("export ").partition("=")
    monkeypatch.setenv(name, url.replace("127.0.0.1:4000", example.url.partition("//")[2]))
    example.run(*produce.split())
    example.start(*work.split())
    expected = "ann paid 250 at try 2\nann was reminded\n"
    receipts = example.folder / "receipts" / "ann.txt"
    ends = time.monotonic() + END_S
    while not receipts.exists() or receipts.read_text() != expected:
        assert time.monotonic() < ends
        time.sleep(0.05)
    while client.topic("shop").count:
        assert time.monotonic() < ends
        time.sleep(0.05)
    counters = client.topic("shop").queue
    assert counters is not None and counters.acked == 6
