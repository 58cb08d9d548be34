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
    address = fresh_server().base_url
    client = Client(address)
    for number, block in enumerate(blocks("python")):
        names: dict[str, object] = {"__name__": f"coming_from_{number}"}
        exec(compile(block.replace(README_ADDRESS, address), PAGE, "exec"), names)
        app, own = names.get("app"), names.get("client")
        if isinstance(app, App):
            run_worker(app, once=True)
            app.close()
        else:
            assert isinstance(own, Client)
            own.close()
    assert client.diff("events").records[0].data == {"order": 7}
    said = capsys.readouterr().out.splitlines()
    assert sorted(said) == [
        "ann pays 250, try 1",
        "invoice for order 7",
        "mail to ann",
        "report of 2026",
        "work on cat.png",
    ]
    assert [job.key for job in client.jobs("charges")] == ["order-7"], "it is due in a minute"
    client.close()
