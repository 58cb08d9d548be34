"""docs/client.md: its examples run, its table is complete."""

from __future__ import annotations

import re

import pytest

from logqueue.client import Client
from tests.house import page
from tests.http.conftest import FreshServer

PAGE = "docs/client.md"


def test_the_examples_run(
    fresh_server: FreshServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page(PAGE)
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    server = fresh_server()
    monkeypatch.setenv("LOGQUEUE_URL", server.base_url)
    code = "\n".join(blocks).replace("http://127.0.0.1:4000", server.base_url)
    names: dict[str, object] = {}
    exec(compile(code, PAGE, "exec"), names)
    assert capsys.readouterr().out == "1 to 4901 are gone (cap)\n"
    for name in ("client", "patient"):
        client = names[name]
        assert isinstance(client, Client)
        client.close()


def test_the_table_names_every_method() -> None:
    _, _, table = page(PAGE).partition("## All methods")
    named = set(re.findall(r"`(\w+)`", table.partition("`help")[0]))
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert named == methods | {"append", "backup"}
