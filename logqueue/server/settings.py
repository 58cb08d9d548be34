"""What an operator may choose when a server starts.

Owns: the name, default and bounds of every setting, where a value may come from (a flag wins over
its LOGQUEUE_ variable), and refusing invalid values. Must not know: argument parsers,
sockets, files. Fixed limits are not settings; they are defined with the rules they bound.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from logqueue.errors import quoted
from logqueue.server.auth import KeyListError, KeyRing, parse_keys
from logqueue.server.hosts import is_local_name, parse_name

ENV_PREFIX: Final = "LOGQUEUE_"

PORT_MAX: Final = 65_535
BODY_BYTES_MAX: Final = 1 << 27  # a body, with room for its index, must fit one frame of the log
SEGMENT_BYTES_MIN: Final = 1024
SEGMENT_BYTES_MAX: Final = 1 << 40
QUOTA_MAX: Final = (1 << 63) - 1
HEARTBEAT_MS_MAX: Final = 60_000
REPLICA_MODES: Final = ("async", "sync")
REPLICA_MS_MAX: Final = 3_600_000
REPLICA_KEEP_MS: Final = 7 * 24 * 3_600_000
AUTO_PROMOTE_MS_MIN: Final = 3000


class SettingsError(ValueError):
    """A setting that cannot be used: the message says which, what was given, what is expected."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as operators see it.

    Attributes:
        name: The field of `Settings`; the flag and the variable are derived from it.
        purpose: One line for ``--help``.
        metavar: What the value is called there; None marks a switch.
        low: The lowest number allowed, when the value is a number.
        high: The highest number allowed, when the value is a number.
        is_on_off: The value is on or off: a switch that is on by default.
        is_duration: The value is a time such as 15s or 7d; the field has it in ms.
        choices: What the value may be, where it is one of a few words.
    """

    name: str
    purpose: str
    metavar: str | None = None
    low: int | None = None
    high: int | None = None
    is_on_off: bool = False
    is_duration: bool = False
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command line flag, such as ``--data-dir``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as ``LOGQUEUE_DATA_DIR``."""
        return ENV_PREFIX + self.name.upper()


def _quota(name: str, what: str) -> Option:
    return Option(name, f"maximum {what}; 0 = unlimited", "N", 0, QUOTA_MAX)


OPTIONS: Final[tuple[Option, ...]] = (
    Option("host", "address to listen on, optionally with a port: 127.0.0.1:4000", "HOST"),
    Option("port", "port to listen on; 0 = any free port", "PORT", 0, PORT_MAX),
    Option("port_file", "file that gets host:port once the port is bound", "FILE"),
    Option("api_keys", "API keys: secret[:scopes[:prefixes]], comma-separated", "KEYS"),
    Option("keys_file", "file of API keys, one per line; reloaded on SIGHUP", "FILE"),
    Option("probe_auth", "require a key for the health and readiness probes"),
    Option("allow_insecure_no_auth", "allow listening beyond this machine without keys"),
    Option("allow_host", "host names to accept, name[:port], comma-separated", "NAMES"),
    Option("no_ui", "do not serve the dashboard at /ui/"),
    Option("sqs", "serve clients of Amazon SQS at /sqs; see docs/sqs.md"),
    Option("max_body_bytes", "largest request body in bytes", "BYTES", 1, BODY_BYTES_MAX),
    Option("data_dir", "data directory", "DIR"),
    Option(
        "segment_max_bytes",
        "size in bytes at which a log rolls to a new segment",
        "BYTES",
        SEGMENT_BYTES_MIN,
        SEGMENT_BYTES_MAX,
    ),
    Option("verify_at_start", "read every byte of all segments at the start, before ready"),
    Option(
        "archive_dir",
        "log archive, for segments that the logs drop: a directory, or the URL of the replica",
        "DIR|URL",
    ),
    Option(
        "archive_max_age_ms",
        "age in ms at which archived segments are deleted; 0 = never",
        "MS",
        0,
        QUOTA_MAX,
    ),
    _quota("archive_max_bytes", "size of the log archive, in bytes"),
    Option("replica", "replica of the log: file:///DIR, s3://…, gs://… or az://…", "URL"),
    Option(
        "replica_mode",
        "whether replies wait for the replica (sync) or only for the disk (async)",
        "|".join(REPLICA_MODES),
        choices=REPLICA_MODES,
    ),
    Option(
        "replica_lag_ms",
        "async: longest time in ms that written frames wait before they are sent to the replica",
        "MS",
        1,
        REPLICA_MS_MAX,
    ),
    Option(
        "replica_timeout_ms",
        "sync: time in ms that a reply waits for the replica before it fails",
        "MS",
        1,
        REPLICA_MS_MAX,
    ),
    Option(
        "replica_lag_max_ms",
        "async: lag in ms beyond which the server is not ready; 0 = never",
        "MS",
        0,
        QUOTA_MAX,
    ),
    Option(
        "replica_keep",
        "how far back any moment can be restored from the replica (default: 7d)",
        "TIME",
        is_duration=True,
    ),
    Option(
        "advertise",
        "base URL at which clients reach this server (default: from host and port)",
        "URL",
    ),
    Option(
        "discard_local",
        "start from the replica although the data directory has a log that differs; the log of the "
        "directory is moved aside",
    ),
    Option("standby", "follow the writer of the replica; take over when promoted"),
    Option(
        "auto_promote",
        "standby: take over once the writer's heartbeat has stopped for this time; 0 = never",
        "TIME",
        is_duration=True,
    ),
    Option(
        "standby_poll_ms",
        "standby: how often in ms it looks for what is new in the replica",
        "MS",
        1,
        REPLICA_MS_MAX,
    ),
    Option(
        "auto_create",
        "whether a write to a missing topic creates it (default: on)",
        "on|off",
        is_on_off=True,
    ),
    _quota("max_topics", "number of topics"),
    _quota("max_routers", "number of routers"),
    _quota("max_watch_sessions", "number of watch sessions"),
    _quota("max_sse_connections", "number of open streams and sockets"),
    _quota("max_sse_connections_per_key", "number of open streams and sockets per key"),
    _quota("max_inflight_per_key", "number of requests in progress per key"),
    _quota("max_producers", "number of producers of transactional appends"),
    _quota("max_schedules", "number of schedules"),
    _quota("max_batches", "number of batches of jobs, with those that ended within a day"),
    _quota("max_client_bytes", "bytes of unfinished and waiting requests"),
    _quota("max_client_bytes_per_key", "bytes of unfinished and waiting requests per key"),
    _quota("max_total_bytes", "size of the live records of all topics, in bytes"),
    Option(
        "metrics_topics_max",
        "number of topics with metrics of their own; the others are summed",
        "N",
        0,
        100_000,
    ),
    Option(
        "test_min_heartbeat_ms",
        "lower bound of stream heartbeats in ms, for tests",
        "MS",
        1,
        HEARTBEAT_MS_MAX,
    ),
)

_OPTION_BY_NAME: Final = {option.name: option for option in OPTIONS}
_OF_REPLICA: Final = (
    "replica_mode",
    "replica_lag_ms",
    "replica_timeout_ms",
    "replica_lag_max_ms",
    "replica_keep",
    "discard_local",
    "standby",
    "auto_promote",
    "standby_poll_ms",
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s]*")
_DURATION: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a server is started with. The defaults are those of a bare ``logqueue serve``."""

    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str | None = None
    api_keys: KeyRing = field(default_factory=KeyRing)
    keys_file: str | None = None
    probe_auth: bool = False
    allow_insecure_no_auth: bool = False
    allow_host: tuple[str, ...] = ()
    no_ui: bool = False
    sqs: bool = False
    max_body_bytes: int = 67_108_864
    data_dir: str = "logqueue-data"
    segment_max_bytes: int = 67_108_864
    verify_at_start: bool = False
    archive_dir: str | None = field(default=None, repr=False)  # may carry credentials
    archive_max_age_ms: int = 0
    archive_max_bytes: int = 0
    replica: str | None = field(default=None, repr=False)  # may carry credentials
    replica_mode: str = "async"
    replica_lag_ms: int = 1000
    replica_timeout_ms: int = 10_000
    replica_lag_max_ms: int = 0
    replica_keep: int = REPLICA_KEEP_MS
    advertise: str | None = None
    discard_local: bool = False
    standby: bool = False
    auto_promote: int = 0
    standby_poll_ms: int = 500
    auto_create: bool = True
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_producers: int = 10_000
    max_schedules: int = 100_000
    max_batches: int = 10_000
    max_client_bytes: int = 512 << 20
    max_client_bytes_per_key: int = 256 << 20
    max_total_bytes: int = 0
    metrics_topics_max: int = 1000
    test_min_heartbeat_ms: int | None = None

    @classmethod
    def load(cls, argv_flags: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
        """Read the settings from flags and environment; a flag wins over its variable.

        Args:
            argv_flags: Values by field name. None means not given, and so does a switch that is
                False; text is parsed as it would be from the environment.
            environ: The process environment. An empty variable counts as not set.

        Raises:
            SettingsError: A value cannot be understood, is out of range, contradicts another, or
                would open the server to the network without keys.
        """
        unknown = sorted(set(argv_flags) - set(_OPTION_BY_NAME))
        if unknown:
            raise SettingsError(
                f"unknown setting {quoted(unknown[0])}: use one of {', '.join(_OPTION_BY_NAME)}"
            )
        given = {
            option.name: found
            for option in OPTIONS
            if (found := _find(option, argv_flags, environ)) is not None
        }
        values: dict[str, Any] = {name: _parse(found) for name, found in given.items()}
        if "host" in values:
            values["host"], port = _split_host(given["host"])
            if port is not None and _host_decides_port(given, port):
                values["port"] = port
        if _is_url(values.get("archive_dir", "")):
            # An archive in a store is the history of the replica that is there.
            values.setdefault("replica", values["archive_dir"])
        settings = cls(**values)
        settings._refuse_two_key_lists()
        settings._refuse_open_doors()
        settings._refuse_idle_bounds()
        settings._refuse_idle_replica(given)
        return settings

    @property
    def is_insecure(self) -> bool:
        """Whether the server listens beyond this machine without asking for keys."""
        return not self.asks_for_keys and not is_loopback(self.host)

    @property
    def asks_for_keys(self) -> bool:
        """Whether the server has keys, or reads them from a file."""
        return bool(self.api_keys) or self.keys_file is not None

    @property
    def archives_in_replica(self) -> bool:
        """Whether the log archive is the history of the replica, not a directory."""
        return _is_url(self.archive_dir or "")

    @property
    def archive_directory(self) -> str | None:
        """The directory of the log archive; None when it has none."""
        return None if self.archives_in_replica else self.archive_dir

    def _refuse_two_key_lists(self) -> None:
        if self.api_keys and self.keys_file is not None:
            raise SettingsError(
                "keys are set twice, by LOGQUEUE_API_KEYS and by LOGQUEUE_KEYS_FILE: move all of "
                "them to the file, or leave the file out"
            )

    def _refuse_open_doors(self) -> None:
        if self.is_insecure and not self.allow_insecure_no_auth:
            raise SettingsError(
                f"refusing to listen on '{self.host}' without keys: everyone who can reach this "
                "address could read, write and delete everything. Three ways out: set keys "
                "(LOGQUEUE_API_KEYS=<secret>), listen on this machine only "
                "(LOGQUEUE_HOST=127.0.0.1), or, when something in front of the server already "
                "keeps strangers out, say so with LOGQUEUE_ALLOW_INSECURE_NO_AUTH=1"
            )

    def _refuse_idle_bounds(self) -> None:
        if self.archive_dir is None and (self.archive_max_age_ms or self.archive_max_bytes):
            raise SettingsError(
                "LOGQUEUE_ARCHIVE_MAX_AGE_MS and LOGQUEUE_ARCHIVE_MAX_BYTES bound an archive, but "
                "there is none: set LOGQUEUE_ARCHIVE_DIR too, or leave them out"
            )
        if not self.archives_in_replica:
            return
        if (self.archive_dir or "").rstrip("/") != (self.replica or "").rstrip("/"):
            raise SettingsError(
                "LOGQUEUE_ARCHIVE_DIR and LOGQUEUE_REPLICA are two URLs: an archive in a store is "
                "the history of the replica there. Give both the same URL, or the archive a "
                "directory"
            )
        if not self.replica_keep and (self.archive_max_age_ms or self.archive_max_bytes):
            raise SettingsError(
                "LOGQUEUE_REPLICA_KEEP is 0: the replica keeps every moment, so "
                "LOGQUEUE_ARCHIVE_MAX_AGE_MS and LOGQUEUE_ARCHIVE_MAX_BYTES cannot bound its "
                "history. Leave them out, or set LOGQUEUE_REPLICA_KEEP to a time such as 7d"
            )

    def _refuse_idle_replica(self, given: Mapping[str, _Given]) -> None:
        if self.replica is None:
            for name in _OF_REPLICA:
                if name in given:
                    raise SettingsError(
                        f"{given[name].origin} is about a replica, but there is none: set "
                        "LOGQUEUE_REPLICA too, or leave it out"
                    )
        if "auto_promote" in given and not self.standby:
            raise SettingsError(
                f"{given['auto_promote'].origin} is for a standby: set LOGQUEUE_STANDBY=1 too, or "
                "leave it out"
            )
        if 0 < self.auto_promote < AUTO_PROMOTE_MS_MIN:
            raise given["auto_promote"].refuse(f"0, or at least {AUTO_PROMOTE_MS_MIN}ms")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host.

    Names other than ``localhost`` are not looked up; they count as reachable from elsewhere.
    """
    return is_local_name(host.lower()) and not host.lower().endswith(".localhost")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and where it came from."""

    option: Option
    value: object
    is_flag: bool

    @property
    def origin(self) -> str:
        return self.option.flag if self.is_flag else self.option.variable

    def refuse(self, expected: str) -> SettingsError:
        return SettingsError(f"{self.origin} is {_shown(self.value)}; expected {expected}")


def _find(
    option: Option, argv_flags: Mapping[str, object], environ: Mapping[str, str]
) -> _Given | None:
    flag = argv_flags.get(option.name)
    if flag is not None and not (flag is False and option.metavar is None):
        return _Given(option, flag, is_flag=True)
    variable = environ.get(option.variable, "")
    return _Given(option, variable, is_flag=False) if variable.strip() else None


def _parse(given: _Given) -> object:
    option = given.option
    if option.name == "api_keys":
        return _parse_key_list(given)
    if option.name == "allow_host":
        return _parse_names(given)
    if option.name == "replica" or (
        option.name == "archive_dir" and _is_url(str(given.value).strip())
    ):
        return _parse_replica(given)
    if option.name == "advertise":
        return _parse_base_url(given)
    if option.is_on_off:
        return _parse_on_off(given)
    if option.is_duration:
        return _parse_duration(given)
    if option.choices:
        return _parse_choice(given, option.choices)
    if option.metavar is None:
        return _parse_switch(given)
    if option.low is not None and option.high is not None:
        return _parse_number(given, option.low, option.high)
    if not isinstance(given.value, str) or not given.value.strip() or "\0" in given.value:
        raise given.refuse("non-empty text")
    return given.value


def _parse_number(given: _Given, low: int, high: int) -> int:
    expected = f"an integer from {low} to {high}"
    value = given.value
    if isinstance(value, str):
        text = value.strip()
        # int() takes signs, underscores and other scripts' digits, and refuses 5000 digits.
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise given.refuse(expected)
        value = int(text)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise given.refuse(expected)
    return value


def _parse_switch(given: _Given) -> bool:
    value = given.value
    if isinstance(value, str):
        value = _SWITCH.get(value.strip().lower())
    if not isinstance(value, bool):
        raise given.refuse("1 or true (on), 0 or false (off)")
    return value


def _parse_on_off(given: _Given) -> bool:
    value = given.value
    if isinstance(value, str):
        text = value.strip().lower()
        value = {"on": True, "off": False, **_SWITCH}.get(text)
    if not isinstance(value, bool):
        raise given.refuse("on or off")
    return value


def _parse_duration(given: _Given) -> int:
    value = given.value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is not None:
            value = int(match[1]) * _UNIT_MS[match[2]]
        elif value.strip() == "0":
            value = 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= QUOTA_MAX:
        raise given.refuse("a time such as 500ms, 15s, 5m, 2h or 7d, or 0")
    return value


def _parse_choice(given: _Given, choices: tuple[str, ...]) -> str:
    text = str(given.value).strip().lower()
    if text not in choices:
        raise given.refuse(" or ".join(choices))
    return text


def _parse_replica(given: _Given) -> str:
    # Nothing here may quote the value: it may carry credentials.
    text = str(given.value).strip()
    if not _URL.fullmatch(text):
        raise SettingsError(
            f"{given.origin} is not the URL of a replica; expected file:///DIR, s3://BUCKET/PREFIX,"
            " gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        )
    return text


def _is_url(text: str) -> bool:
    """Whether a place is the URL of a store, well-formed or not, and not a directory."""
    return "://" in text


def _parse_base_url(given: _Given) -> str:
    text = str(given.value).strip().rstrip("/")
    if not re.fullmatch(r"https?://[^\s/@?#]+", text):
        raise SettingsError(
            f"{given.origin} is not the base URL of a server; expected http://HOST:PORT or "
            "https://HOST, without path and credentials"
        )
    return text


def _parse_key_list(given: _Given) -> KeyRing:
    # Nothing here may quote the value: it is made of secrets.
    if not isinstance(given.value, str):
        raise SettingsError(f"{given.origin} is not text; expected a list of keys")
    try:
        ring = parse_keys(given.value)
    except KeyListError as problem:
        raise SettingsError(f"{given.origin}: {problem}") from problem
    if not ring:
        raise SettingsError(
            f"{given.origin} is set but has no key: give at least one secret, or leave it "
            "unset to run without keys"
        )
    return ring


def _parse_names(given: _Given) -> tuple[str, ...]:
    names = [part.strip() for part in str(given.value).split(",") if part.strip()]
    if not names or any(parse_name(name) is None for name in names):
        raise given.refuse("host names or addresses, comma-separated, each with or without :port")
    return tuple(names)


def _split_host(given: _Given) -> tuple[str, int | None]:
    """Split ``host``, ``host:port``, ``[v6]`` or ``[v6]:port``; a bare v6 address has no port."""
    text = str(given.value).strip()
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(.*))?", text)
    if bracketed:
        host, port_text = bracketed[1], bracketed[2]
        if not _is_ipv6(host):
            raise given.refuse("an IPv6 address between the brackets")
    elif text.count(":") > 1:
        host, port_text = text, None
        if not _is_ipv6(host):
            raise given.refuse("a host, host:port, or an IPv6 address as in [::1]:4000")
    else:
        host, colon, rest = text.partition(":")
        port_text = rest if colon else None
    if not re.fullmatch(r"[^\s\[\]/]+", host):
        raise given.refuse("a host name or address, with or without :port")
    if port_text is None:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port_text) or int(port_text) > PORT_MAX:
        raise given.refuse(f"a port from 0 to {PORT_MAX} after the last colon")
    return host, int(port_text)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _host_decides_port(given: Mapping[str, _Given], port: int) -> bool:
    """Whether the port inside the host counts: a port given on its own may win or contradict."""
    host, own = given["host"], given.get("port")
    if own is None:
        return True
    if own.is_flag == host.is_flag and _parse(own) != port:
        raise SettingsError(
            f"{host.origin} is {_shown(host.value)} but {own.origin} is {_shown(own.value)}; "
            "give the port once, or the same in both"
        )
    return host.is_flag


def _shown(value: object) -> str:
    """A value as messages show it."""
    return quoted(value) if isinstance(value, str) else str(value)
