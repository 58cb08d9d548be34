"""`logqueue server`, `logqueue log-level`, and the calls behind them."""

from __future__ import annotations

from logqueue.client import Client
from tests.cli.conftest import Cli


def test_the_state_is_shown_for_people_and_for_programs(client: Client, cli: Cli) -> None:
    client.append("state.log", [1, 2], create=True)
    shown = cli("server")
    assert shown.status in (0, 1)
    assert shown.out.startswith("health: ")
    for text in ("version", "memory", "jobs", "leases", "connections"):
        assert text in shown.out
    told = cli("server", "--json").json
    assert told["health"]["state"] in ("ok", "attention", "bad")
    assert told["records"] >= 2
    assert "performance" in told


def test_the_level_is_changed_for_a_while(client: Client, cli: Cli) -> None:
    try:
        changed = cli("log-level", "debug", "--for", "10m")
        assert changed.out.startswith("debug until ") and changed.out.endswith(", then info\n")
        assert cli("log-level").out == changed.out
        assert cli("log-level", "--json").json["level"] == "debug"
    finally:
        client.set_log_level("info")
    assert cli("log-level").out == "info\n"


def test_bad_uses_of_the_level(cli: Cli) -> None:
    for arguments, why in (
        (("loud",), "invalid choice"),
        (("--for", "10m"), "--for belongs to a level"),
        (("debug", "--for", "8d"), "for_ms"),
        (("debug", "--url", "http://a:1,http://b:2"), "each server has its own log level"),
    ):
        ended = cli("log-level", *arguments)
        assert ended.status != 0
        assert why in ended.err, (arguments, ended.err)
