"""Settings from flags and environment: who wins, what is refused, and what the refusal says."""

from __future__ import annotations

import dataclasses

import pytest

from logqueue.model.scopes import Scope
from logqueue.server.settings import (
    BODY_BYTES_MAX,
    OPTIONS,
    Settings,
    SettingsError,
    is_loopback,
)
from wal.log import FRAME_BYTES_MAX


def from_env(**variables: str) -> Settings:
    return Settings.load({}, {f"LOGQUEUE_{name}": value for name, value in variables.items()})


def test_the_defaults() -> None:
    assert Settings.load({}, {}) == Settings()
    assert dataclasses.asdict(Settings()) == {
        "host": "127.0.0.1",
        "port": 4000,
        "port_file": None,
        "api_keys": {"keys": ()},
        "keys_file": None,
        "probe_auth": False,
        "allow_insecure_no_auth": False,
        "allow_host": (),
        "no_ui": False,
        "sqs": False,
        "max_body_bytes": 67_108_864,
        "data_dir": "logqueue-data",
        "segment_max_bytes": 67_108_864,
        "verify_at_start": False,
        "archive_dir": None,
        "archive_max_age_ms": 0,
        "archive_max_bytes": 0,
        "replica": None,
        "replica_mode": "async",
        "replica_lag_ms": 1000,
        "replica_timeout_ms": 10_000,
        "replica_lag_max_ms": 0,
        "replica_keep": 604_800_000,
        "advertise": None,
        "discard_local": False,
        "standby": False,
        "auto_promote": 0,
        "standby_poll_ms": 500,
        "auto_create": True,
        "max_topics": 100_000,
        "metrics_topics_max": 1000,
        "max_routers": 10_000,
        "max_watch_sessions": 10_000,
        "max_sse_connections": 10_000,
        "max_sse_connections_per_key": 1000,
        "max_inflight_per_key": 1000,
        "max_producers": 10_000,
        "max_schedules": 100_000,
        "max_batches": 10_000,
        "max_client_bytes": 536_870_912,
        "max_client_bytes_per_key": 268_435_456,
        "max_total_bytes": 0,
        "test_min_heartbeat_ms": None,
    }


def test_the_largest_body_fits_one_frame_of_the_log() -> None:
    assert BODY_BYTES_MAX * 2 <= FRAME_BYTES_MAX


def test_every_field_is_an_option_with_a_purpose() -> None:
    assert [option.name for option in OPTIONS] == [f.name for f in dataclasses.fields(Settings)]
    assert all(option.purpose for option in OPTIONS)
    (data_dir,) = [option for option in OPTIONS if option.name == "data_dir"]
    assert (data_dir.flag, data_dir.variable) == ("--data-dir", "LOGQUEUE_DATA_DIR")


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("HOST", "localhost", "host", "localhost"),
        ("PORT", "0", "port", 0),
        ("PORT", " 65535 ", "port", 65535),
        ("PORT_FILE", "run/port", "port_file", "run/port"),
        ("PROBE_AUTH", "1", "probe_auth", True),
        ("PROBE_AUTH", "True", "probe_auth", True),
        ("PROBE_AUTH", "0", "probe_auth", False),
        ("PROBE_AUTH", "false", "probe_auth", False),
        ("ALLOW_INSECURE_NO_AUTH", "true", "allow_insecure_no_auth", True),
        ("ALLOW_HOST", " a.example, [::1]:8 ,", "allow_host", ("a.example", "[::1]:8")),
        ("MAX_BODY_BYTES", "1", "max_body_bytes", 1),
        ("DATA_DIR", "my data", "data_dir", "my data"),
        ("SEGMENT_MAX_BYTES", "1024", "segment_max_bytes", 1024),
        ("MAX_TOPICS", "7", "max_topics", 7),
        ("AUTO_CREATE", "off", "auto_create", False),
        ("AUTO_CREATE", " On ", "auto_create", True),
        ("AUTO_CREATE", "false", "auto_create", False),
        ("MAX_TOPICS", "007", "max_topics", 7),
        ("MAX_ROUTERS", "0", "max_routers", 0),
        ("MAX_WATCH_SESSIONS", "3", "max_watch_sessions", 3),
        ("MAX_SSE_CONNECTIONS", "4", "max_sse_connections", 4),
        ("MAX_SSE_CONNECTIONS_PER_KEY", "5", "max_sse_connections_per_key", 5),
        ("MAX_INFLIGHT_PER_KEY", "6", "max_inflight_per_key", 6),
        ("MAX_PRODUCERS", "0", "max_producers", 0),
        ("MAX_CLIENT_BYTES", "8", "max_client_bytes", 8),
        ("MAX_CLIENT_BYTES_PER_KEY", "9", "max_client_bytes_per_key", 9),
        ("MAX_TOTAL_BYTES", "9223372036854775807", "max_total_bytes", 2**63 - 1),
        ("TEST_MIN_HEARTBEAT_MS", "20", "test_min_heartbeat_ms", 20),
        # An empty variable is one that was not set.
        ("PORT", "", "port", 4000),
        ("DATA_DIR", " ", "data_dir", "logqueue-data"),
        ("PROBE_AUTH", "", "probe_auth", False),
    ],
)
def test_variables(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(from_env(**{variable: text}), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("PORT", "http", "an integer from 0 to 65535"),
        ("PORT", "65536", "an integer from 0 to 65535"),
        ("PORT", "-1", "an integer from 0 to 65535"),
        ("PORT", "+1", "an integer from 0 to 65535"),
        ("PORT", "4_000", "an integer from 0 to 65535"),
        ("PORT", "4000.0", "an integer from 0 to 65535"),
        ("PORT", "٤٠٠٠", "an integer from 0 to 65535"),
        ("MAX_BODY_BYTES", "0", "an integer from 1 to "),
        ("MAX_BODY_BYTES", "134217729", "an integer from 1 to 134217728"),
        ("MAX_BODY_BYTES", "64MiB", "an integer from 1 to "),
        ("SEGMENT_MAX_BYTES", "1", "an integer from 1024 to "),
        ("MAX_TOPICS", "many", "an integer from 0 to "),
        ("AUTO_CREATE", "never", "on or off"),
        ("MAX_TOPICS", "1" * 5000, "an integer from 0 to "),
        ("MAX_TOTAL_BYTES", "9223372036854775808", "an integer from 0 to "),
        ("TEST_MIN_HEARTBEAT_MS", "0", "an integer from 1 to 60000"),
        ("PROBE_AUTH", "yes", "1 or true"),
        ("ALLOW_INSECURE_NO_AUTH", "please", "1 or true"),
        ("HOST", "a b", "a host name or address"),
        ("HOST", "http://x", "a port from 0 to 65535 after the last colon"),
        ("HOST", "x:port", "a port from 0 to 65535 after the last colon"),
        ("HOST", "x:", "a port from 0 to 65535 after the last colon"),
        ("HOST", "x:70000", "a port from 0 to 65535 after the last colon"),
        ("HOST", ":4000", "a host name or address"),
        ("HOST", "[::1]:", "a port from 0 to 65535 after the last colon"),
        ("HOST", "[::1]4000", "an IPv6 address as in [::1]:4000"),
        ("HOST", "[localhost]:1", "an IPv6 address between the brackets"),
        ("HOST", "a:b:c", "an IPv6 address as in [::1]:4000"),
    ],
)
def test_a_refusal_says_which_setting_what_was_given_and_what_is_expected(
    variable: str, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        from_env(**{variable: text})
    message = str(caught.value)
    assert message.startswith(f"LOGQUEUE_{variable} is {text!r}; expected ")
    assert expected in message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", 65536, "--port is 65536; expected an integer from 0 to 65535"),
        ("port", True, "--port is True; expected"),
        ("port", 1.5, "--port is 1.5; expected"),
        ("data_dir", "", "--data-dir is ''; expected non-empty text"),
        ("data_dir", "a\0b", "--data-dir is 'a\\x00b'; expected non-empty text"),
        ("host", 7, "--host is 7; expected non-empty text"),
        ("probe_auth", 1, "--probe-auth is 1; expected 1 or true"),
        ("api_keys", 7, "--api-keys is not text"),
        ("prot", 4000, "unknown setting 'prot'"),
    ],
)
def test_refused_flags(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load({name: value}, {})
    assert message in str(caught.value)


def test_a_flag_wins_over_its_variable() -> None:
    environ = {
        "LOGQUEUE_PORT": "5000",
        "LOGQUEUE_DATA_DIR": "from-env",
        "LOGQUEUE_PROBE_AUTH": "0",
        "LOGQUEUE_MAX_TOPICS": "not even a number",
    }
    flags = {"port": 0, "data_dir": "from-flag", "probe_auth": True, "max_topics": "12"}
    settings = Settings.load(flags, environ)
    assert settings.port == 0
    assert settings.data_dir == "from-flag"
    assert settings.probe_auth is True
    assert settings.max_topics == 12


def test_a_flag_that_was_not_given_leaves_the_variable_in_force() -> None:
    flags = {"port": None, "probe_auth": False, "data_dir": None}
    environ = {"LOGQUEUE_PORT": "5000", "LOGQUEUE_PROBE_AUTH": "1"}
    settings = Settings.load(flags, environ)
    assert (settings.port, settings.probe_auth) == (5000, True)
    assert settings.data_dir == "logqueue-data"


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 4000),
        ("127.0.0.1:5000", "127.0.0.1", 5000),
        ("localhost:0", "localhost", 0),
        (" localhost:1 ", "localhost", 1),
        ("[::1]:4001", "::1", 4001),
        ("[::1]", "::1", 4000),
        ("::1", "::1", 4000),
    ],
)
def test_a_host_may_carry_a_port(given: str, host: str, port: int) -> None:
    settings = from_env(HOST=given)
    assert (settings.host, settings.port) == (host, port)


@pytest.mark.parametrize(
    ("flags", "environ", "port"),
    [
        ({"port": 7}, {"LOGQUEUE_HOST": "localhost:5000"}, 7),
        ({"host": "localhost:7"}, {"LOGQUEUE_PORT": "5000"}, 7),
        ({"host": "localhost"}, {"LOGQUEUE_PORT": "5000"}, 5000),
        ({"host": "localhost"}, {"LOGQUEUE_HOST": "127.0.0.1:5000"}, 4000),
        ({"host": "localhost:7", "port": 7}, {}, 7),
        ({}, {"LOGQUEUE_HOST": "localhost:7", "LOGQUEUE_PORT": "7"}, 7),
    ],
)
def test_which_port_wins(flags: dict[str, object], environ: dict[str, str], port: int) -> None:
    assert Settings.load(flags, environ).port == port


def test_two_ports_from_one_source_contradict() -> None:
    with pytest.raises(SettingsError, match=r"LOGQUEUE_HOST is 'localhost:1' but LOGQUEUE_PORT"):
        from_env(HOST="localhost:1", PORT="2")
    with pytest.raises(SettingsError, match="--host is 'localhost:1' but --port is 2"):
        Settings.load({"host": "localhost:1", "port": 2}, {})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("127.1", False),
        ("", False),
    ],
)
def test_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1:4000", "[::]:4000", "example.org"])
def test_the_network_without_keys_is_refused_with_three_ways_out(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_env(HOST=host)
    for way_out in ("LOGQUEUE_API_KEYS", "LOGQUEUE_HOST=127.0.0.1", "ALLOW_INSECURE_NO_AUTH=1"):
        assert way_out in str(caught.value)
    with pytest.raises(SettingsError):
        from_env(HOST=host, ALLOW_INSECURE_NO_AUTH="0")

    assert from_env(HOST=host, API_KEYS="k1").is_insecure is False
    assert from_env(HOST=host, ALLOW_INSECURE_NO_AUTH="1").is_insecure is True
    assert Settings.load({"host": host, "allow_insecure_no_auth": True}, {}).is_insecure is True


def test_keys_are_parsed_and_their_secrets_forgotten() -> None:
    settings = from_env(API_KEYS="open-sesame:read:tenant-, other")
    key = settings.api_keys.authenticate("open-sesame")
    assert key is not None
    assert (key.scopes, key.prefixes) == (Scope.READ, ("tenant-",))
    assert "open-sesame" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good,open-sesame:nope", "LOGQUEUE_API_KEYS: entry 2 of the key list"),
        (" , ", "LOGQUEUE_API_KEYS is set but has no key"),
    ],
)
def test_a_bad_key_list_is_refused_without_printing_it(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_env(API_KEYS=text)
    assert message in str(caught.value)
    assert "open-sesame" not in str(caught.value)


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


# -- replica -------------------------------------------------------------------------------------


def test_settings_of_a_replica() -> None:
    settings = from_env(
        REPLICA="s3://bucket/logs",
        REPLICA_MODE="Sync",
        REPLICA_LAG_MS="20",
        REPLICA_TIMEOUT_MS="500",
        REPLICA_LAG_MAX_MS="60000",
        REPLICA_KEEP="36h",
        ADVERTISE="http://a.example:4000/",
        DISCARD_LOCAL="1",
        STANDBY="1",
        AUTO_PROMOTE="15s",
    )
    assert settings == Settings(
        replica="s3://bucket/logs",
        replica_mode="sync",
        replica_lag_ms=20,
        replica_timeout_ms=500,
        replica_lag_max_ms=60_000,
        replica_keep=36 * 3_600_000,
        advertise="http://a.example:4000",
        discard_local=True,
        standby=True,
        auto_promote=15_000,
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("15s", 15_000), (" 5m ", 300_000), ("2h", 7_200_000), ("7d", 604_800_000)],
)
def test_times(text: str, ms: int) -> None:
    assert from_env(REPLICA="file:///r", REPLICA_KEEP=text).replica_keep == ms


@pytest.mark.parametrize("text", ["7", "d", "-1s", "1.5h", "7 d", "1w", "9" * 20 + "s", "٧d"])
def test_times_that_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"LOGQUEUE_REPLICA_KEEP is .*expected a time such as"):
        from_env(REPLICA="file:///r", REPLICA_KEEP=text)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"REPLICA_MODE": "sync"}, "LOGQUEUE_REPLICA_MODE is about a replica, but there is none"),
        ({"STANDBY": "1"}, "LOGQUEUE_STANDBY is about a replica"),
        ({"REPLICA": "file:///r", "REPLICA_MODE": "both"}, "'both'; expected async or sync"),
        ({"REPLICA": "file:///r", "AUTO_PROMOTE": "15s"}, "AUTO_PROMOTE is for a standby"),
        ({"REPLICA": "file:///r", "STANDBY": "1", "AUTO_PROMOTE": "5ms"}, "at least 3000ms"),
        ({"REPLICA": "file:///r", "REPLICA_LAG_MS": "0"}, "expected an integer from 1 to"),
        ({"ADVERTISE": "a.example:4000"}, "LOGQUEUE_ADVERTISE is not the base URL of a server"),
        ({"ADVERTISE": "http://u:secret@a.example"}, "without path and credentials"),
    ],
)
def test_settings_of_a_replica_that_are_refused(variables: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        from_env(**variables)
    assert "secret" not in str(refused.value)


def test_an_archive_in_a_store_is_the_history_of_the_replica() -> None:
    url = "s3://bucket/logs"
    alone = from_env(ARCHIVE_DIR=url, ARCHIVE_MAX_BYTES="5")
    assert (alone.replica, alone.archives_in_replica, alone.archive_directory) == (url, True, None)
    assert from_env(ARCHIVE_DIR=url + "/", REPLICA=url).archives_in_replica
    both = from_env(ARCHIVE_DIR="/archive", REPLICA=url)
    assert (both.archives_in_replica, both.archive_directory) == (False, "/archive")
    for variables, message in (
        ({"ARCHIVE_DIR": url, "REPLICA": "s3://other"}, "are two URLs"),
        ({"ARCHIVE_DIR": "no url://x"}, "LOGQUEUE_ARCHIVE_DIR is not the URL of a replica"),
        ({"ARCHIVE_DIR": url, "REPLICA_KEEP": "0", "ARCHIVE_MAX_BYTES": "5"}, "keeps every moment"),
    ):
        with pytest.raises(SettingsError, match=message):
            from_env(**variables)


def test_credentials_in_the_url_of_a_replica_are_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        from_env(REPLICA="key:secret@bucket")
    assert "secret" not in str(refused.value)
    settings = from_env(REPLICA="s3://key:secret@bucket")
    assert "secret" not in repr(settings)
