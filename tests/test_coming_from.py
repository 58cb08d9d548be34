"""docs/coming-from.md: what it says one writes now runs; what one wrote before is Python."""

from __future__ import annotations

import re

import pytest

from logqueue.client import Client
from logqueue.worker import App, run_worker
from tests.house import page
from tests.http.conftest import FreshServer, fresh_server  # noqa: F401

PAGE = "docs/coming-from.md"
README_ADDRESS = "http://127.0.0.1:4000"


def blocks(language: str) -> list[str]:
    """The code of the page that is marked so."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(PAGE), re.MULTILINE | re.DOTALL)


def test_every_way_has_a_before_and_a_now() -> None:
    before, now = blocks("py"), blocks("python")
    assert len(before) == len(now) == len(re.findall(r"^## ", page(PAGE), re.MULTILINE))
    for block in before:
        compile(block, PAGE, "exec")


def test_the_code_of_now_runs(
    fresh_server: FreshServer,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = "\n".join(blocks("python")).replace(README_ADDRESS, fresh_server().base_url)
    names: dict[str, object] = {"__name__": "coming_from"}
    exec(compile(code, PAGE, "exec"), names)
    client, app = names["client"], names["app"]
    assert isinstance(client, Client) and isinstance(app, App)
    assert client.diff("events").records[0].data == {"order": 7}
    assert client.topic("charges").count == 2
    run_worker(app, once=True)
    said = capsys.readouterr().out.splitlines()
    assert sorted(said) == [
        "ann pays 250, try 1",
        "invoice for order 7",
        "mail to ann",
        "report of 2026",
        "work on cat.png",
    ]
    assert [job.key for job in client.jobs("charges")] == ["order-7"], "it is due in a minute"
    app.close()
    client.close()
