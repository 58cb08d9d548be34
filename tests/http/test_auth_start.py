"""What the server refuses to start with, as far as keys, addresses and numbers go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import ok, plain_ok, refused
from tests.http.process import run_to_end


@pytest.mark.parametrize(
    ("keys", "entry"),
    [
        ("sesame:nosuch", "1"),
        ("sesame:read+nosuch", "1"),
        ("good,sesame:reed:tenant-", "2"),
        ("sesame:+", "1"),
        ("sesame:+:tenant-", "1"),
    ],
)
def test_bad_key_lists(tmp_path: Path, keys: str, entry: str) -> None:
    """An unknown scope, or a scope text that names none, ends the start; no secret is printed."""
    status, output = run_to_end(flags(tmp_path), {"API_KEYS": keys})
    assert status != 0
    assert "API_KEYS" in output and entry in output
    assert "sesame" not in output
    assert "Traceback" not in output


def flags(tmp_path: Path, *more: str) -> list[str]:
    """The usual flags of a start that is to fail."""
    return ["--port", "0", "--data-dir", str(tmp_path / "data"), *more]


@pytest.mark.parametrize(
    "settings",
    [
        {"HOST": "0.0.0.0"},
        {"HOST": "0.0.0.0", "ALLOW_INSECURE_NO_AUTH": "0"},
        {"HOST": "0.0.0.0:0"},
        {"HOST": "0.0.0.0", "API_KEYS": " , "},
    ],
    ids=str,
)
def test_a_public_address_needs_keys(tmp_path: Path, settings: dict[str, str]) -> None:
    """Refused, with a message that says why, and no data directory is touched in vain."""
    status, output = run_to_end(flags(tmp_path), settings)
    assert status != 0
    assert "Traceback" not in output
    assert output.strip()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"HOST": "0.0.0.0", "ALLOW_INSECURE_NO_AUTH": "1"}, None),
        ({"HOST": "0.0.0.0", "ALLOW_INSECURE_NO_AUTH": "true"}, None),
        ({"HOST": "0.0.0.0", "API_KEYS": "k"}, "k"),
        ({"HOST": "127.0.0.1:0"}, None),
        ({"HOST": "localhost"}, None),
    ],
    ids=str,
)
def test_addresses_that_are_fine(
    fresh_server: FreshServer, api_for: ApiFor, settings: dict[str, str], key: str | None
) -> None:
    """With keys, with the explicit switch, or on loopback; HOST may carry a port."""
    server = fresh_server(**settings)
    ok(api_for(server, key).topics())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MAX_TOPICS", "many"),
        ("MAX_TOPICS", "-1"),
        ("MAX_BODY_BYTES", "64MB"),
        ("MAX_TOTAL_BYTES", "1.5"),
        ("PORT", "http"),
        ("PORT", "65536"),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, name: str, text: str) -> None:
    """Refused at start instead of being replaced by a default; the message names the setting."""
    given = flags(tmp_path) if name != "PORT" else ["--data-dir", str(tmp_path / "data")]
    status, output = run_to_end(given, {name: text})
    assert status != 0
    assert name in output
    assert "Traceback" not in output


@pytest.mark.parametrize("switch", ["1", "true"])
def test_probes_behind_keys(fresh_server: FreshServer, api_for: ApiFor, switch: str) -> None:
    """With probe auth on, health and ready need a key as well; any scope will do."""
    server = fresh_server(key="w", API_KEYS="w:write", PROBE_AUTH=switch)
    for path in ("/v0/health", "/v0/ready", "/healthz", "/readyz"):
        refused(api_for(server).send("GET", path), 401, "unauthorized", None)
        plain_ok(api_for(server, "w").send("GET", path))


def test_settings_by_environment_alone(
    fresh_server: FreshServer, api_for: ApiFor, tmp_path: Path
) -> None:
    """Flags win over the environment; what no flag says comes from there."""
    server = fresh_server(DATA_DIR=str(tmp_path / "unused"), MAX_TOPICS="1")
    api = api_for(server)
    ok(api.put("one"), 201)
    refused(api.put("two"), 429, "throttled", {"limit": "max_topics", "max": 1})
    assert not (tmp_path / "unused").exists()
