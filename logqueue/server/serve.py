"""The process: from settings to an exit status.

Owns: the lock of the data directory, the socket, the signals, the exit status; what runs inside is
`runtime.py`. The port answers first (health, readiness, 503 for the rest), then the log is replayed
in a thread, then work begins. On SIGTERM or SIGINT: no new requests, streams end with a frame that
says why, requests in progress finish, the log is synced and closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import uvloop

from logqueue.extras import MissingExtra
from logqueue.replica.mirror import MirrorDiverged
from logqueue.replica.object_store import StoreError
from logqueue.replica.opening import BadReplicaUrl
from logqueue.replica.reading import ReplicaUnreadable
from logqueue.server.auth import KEYS_FILE_BYTES_MAX, KeyListError, KeyRing, parse_keys_file
from logqueue.server.http.api import HttpApi
from logqueue.server.http.connection import KEEP_ALIVE_S, HttpConnection
from logqueue.server.runtime import Runtime
from logqueue.server.settings import Settings
from logqueue.server.storage.archive import ArchiveLocked, ArchiveRefused
from logqueue.server.storage.replica_start import ReplicaRefused, ReplicaTaken
from logqueue.version import __version__
from wal import DirectoryLock, OsFileSystem, WalCorrupt, WalError, WalLocked

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_LOCKED = 3
EXIT_CORRUPT = 4
EXIT_PORT = 5
EXIT_FENCED = 6
EXIT_REPLICA = 7

DRAIN_S = 10.0
CANCEL_S = 2.0
FENCED_S = 2.0
"""How long a fenced server tells clients where the writer is."""

logger = logging.getLogger("logqueue.serve")


class KeysFileError(Exception):
    """The file of keys cannot be used; the message says why, and no secret."""


class PortFileError(Exception):
    """The address could not be written where a supervisor looks for it."""


def serve(settings: Settings, *, set_damage_aside: bool = False) -> int:
    """Serve until stopped.

    Returns:
        The exit status: 0 after an orderly stop, 2 when the keys file cannot be used, 3 when
        another server has the data directory, 4 when the log is damaged, 5 when the port cannot
        be bound, 6 when another server has taken over the log, 7 when the replica cannot be used,
        1 for anything else.
    """
    if settings.keys_file is not None:
        try:
            settings = replace(settings, api_keys=read_keys_file(settings.keys_file))
        except KeysFileError as problem:
            logger.error("%s", problem)
            return EXIT_USAGE
    try:
        lock = _take_directory(settings.data_dir)
    except BlockingIOError:
        logger.error(
            "another server has the data directory %s; stop it or choose another --data-dir",
            settings.data_dir,
        )
        return EXIT_LOCKED
    except OSError as error:
        logger.error("the data directory %s cannot be used: %s", settings.data_dir, error)
        return EXIT_FAILURE
    status = EXIT_FAILURE
    try:
        status = _serve_alone(settings, set_damage_aside)
    finally:
        if status == EXIT_CORRUPT:
            # A refusal changes nothing, down to the file of the lock.
            lock.take_back()
        lock.release()
    return status


def read_keys_file(path: str) -> KeyRing:
    """The keys of a file.

    Raises:
        KeysFileError: It cannot be read, or holds no list of keys.
    """
    try:
        with open(path, "rb") as file:
            return parse_keys_file(file.read(KEYS_FILE_BYTES_MAX + 1))
    except OSError as error:
        raise KeysFileError(f"cannot read the keys file {path}: {error.strerror}") from error
    except KeyListError as error:
        raise KeysFileError(f"cannot use the keys file {path}: {error}") from error


def _take_directory(data_dir: str) -> DirectoryLock:
    """Lock the data directory before anything is announced, so that a second server disturbs
    neither the first one's port file nor its clients."""
    files = OsFileSystem()
    files.mkdir(data_dir)
    return files.lock(str(Path(data_dir) / "LOCK"))


def _serve_alone(settings: Settings, set_damage_aside: bool) -> int:
    try:
        bound = _bind(settings)
    except OSError as error:
        logger.error(
            "cannot listen on %s:%d: %s; choose another --port or stop what has it",
            settings.host,
            settings.port,
            error.strerror or error,
        )
        return EXIT_PORT
    _tame_garbage_collector()
    with bound:
        return _Server(settings, bound, set_damage_aside).run()


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host, settings.port))
        bound.listen(2048)
        bound.set_inheritable(True)
    except BaseException:
        bound.close()
        raise
    return bound


def _tame_garbage_collector() -> None:
    """Full collections would walk every live record for nothing: batches and leases have no
    cycles, and reference counts free them. Young objects are still collected."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 1_000_000)
    # The committer thread must get a turn quickly when its sync returns.
    sys.setswitchinterval(0.0001)


class _Server:
    """One run."""

    def __init__(self, settings: Settings, bound: socket.socket, set_damage_aside: bool) -> None:
        self.settings = settings
        self.bound = bound
        self.runtime = Runtime(
            settings, set_damage_aside=set_damage_aside, address=reachable_url(bound)
        )
        self.service = self.runtime.service
        self.status = EXIT_OK
        self.fenced = asyncio.Event()
        config = uvicorn.Config(
            _no_application,
            interface="asgi3",
            http=connection_class(self.runtime.api),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            timeout_graceful_shutdown=int(DRAIN_S),
            backlog=2048,
        )
        self.http = _Uvicorn(config)
        # Those that a stop waits for are those that are counted.
        self.http.server_state.connections = self.service.connections

    def run(self) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())
        return self.status

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        self.runtime.on_fenced = self.fenced.set
        self.runtime.on_handed_over = stop.set
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop.set)
        if self.settings.keys_file is not None and hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._reload_keys)
        try:
            self._announce()
        except PortFileError as error:
            logger.error("%s", error)
            self.status = EXIT_FAILURE
            return
        serving = loop.create_task(self.http.serve(sockets=[self.bound]))
        stopping = loop.create_task(stop.wait())
        recovering = loop.create_task(self._recover(), name="recover")
        await asyncio.wait((stopping, recovering, serving), return_when=asyncio.FIRST_COMPLETED)
        if recovering.done() and recovering.result():
            fenced = loop.create_task(self.fenced.wait())
            await asyncio.wait((stopping, serving, fenced), return_when=asyncio.FIRST_COMPLETED)
            if self.fenced.is_set():
                self.status = EXIT_FENCED
                await asyncio.wait((stopping, serving), timeout=FENCED_S)
            fenced.cancel()
        await self._stop(serving)
        if self.runtime.is_following:
            recovering.cancel()
            await asyncio.wait((recovering,), timeout=CANCEL_S)
        if not recovering.done():
            # A replay cannot be interrupted half-way; the process may simply end.
            logger.warning("stopped during recovery; the next start replays the log again")
            os._exit(self.status)
        stopping.cancel()

    def _reload_keys(self) -> None:
        """Read the file of keys again. One that cannot be used changes nothing."""
        path = self.settings.keys_file
        assert path is not None
        self.service.key_reloads += 1
        try:
            ring = read_keys_file(path)
        except KeysFileError as error:
            self.service.key_reload_failures += 1
            logger.error("%s; the keys read before stay valid", error)
            return
        before = len(self.service.keys.keys)
        self.service.change_keys(ring)
        logger.info("read %s again: keys: %d, before: %d", path, len(ring.keys), before)

    def _announce(self) -> None:
        address = _address(self.bound)
        logger.info("logqueue %s listens on http://%s", __version__, address)
        if not self.service.keys:
            logger.warning(
                "no API keys are set: every client that can reach %s may do everything "
                "(set LOGQUEUE_API_KEYS to change that)",
                address,
            )
        if (
            self.settings.replica is not None
            and not self.settings.advertise
            and not reachable_url(self.bound)
        ):
            logger.warning(
                "this server listens on all interfaces, so a standby cannot name it to clients, "
                "nor ask it to hand over: set LOGQUEUE_ADVERTISE to its URL"
            )
        if self.settings.port_file is not None:
            path = Path(self.settings.port_file)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                draft.write_text(address)
                draft.replace(path)
            except OSError as error:
                draft.unlink(missing_ok=True)
                raise PortFileError(f"cannot write the port file {path}: {error}") from error

    async def _recover(self) -> bool:
        """Whether the server is ready; else `status` says why not."""
        try:
            await self.runtime.come_up()
        except WalLocked as error:
            logger.error("%s", error)
            self.status = EXIT_LOCKED
        except WalCorrupt as error:
            hint = "; or start once with --discard-local to continue from the replica"
            logger.error("%s%s", error, hint if self.settings.replica is not None else "")
            self.status = EXIT_CORRUPT
        except ArchiveRefused as error:
            logger.error("%s", error)
            self.status = EXIT_LOCKED if isinstance(error, ArchiveLocked) else EXIT_FAILURE
        except ReplicaTaken as error:
            logger.error("%s", error)
            self.status = EXIT_FENCED
        except (ReplicaRefused, ReplicaUnreadable, MirrorDiverged, StoreError) as error:
            logger.error("%s", error)
            self.status = EXIT_REPLICA
        except (BadReplicaUrl, MissingExtra) as error:
            logger.error("%s", error)
            self.status = EXIT_USAGE
        except (WalError, OSError) as error:
            logger.error("the data directory cannot be used: %s", error)
            self.status = EXIT_FAILURE
        except Exception:
            logger.exception("recovery failed")
            self.status = EXIT_FAILURE
        else:
            gc.freeze()
            state = self.runtime.begin().engine.state
            live = sum(topic.live for topic in state.instances.values())
            logger.info("ready: %d topics, %d live records", len(state.topics), live)
            return True
        return False

    async def _stop(self, serving: asyncio.Task[None]) -> None:
        self.runtime.drain()
        self.http.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        was_ready = self.runtime.is_running
        if self.fenced.is_set():
            await self.runtime.abort()
            logger.info("stopped; the data directory was left as it is")
            return
        try:
            await self.runtime.stop()
        except WalError as error:
            logger.error("the log could not be closed cleanly: %s", error)
            self.status = EXIT_FAILURE
        else:
            if was_ready:
                logger.info("stopped; everything that was promised is on disk")


def reachable_url(bound: socket.socket) -> str:
    """The base URL by which other machines may reach a server; "" where only the operator knows:
    on the machine that reads it, the address of all interfaces is another server, or none."""
    host = bound.getsockname()[0]
    return "" if ip_address(host).is_unspecified else f"http://{_address(bound)}"


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connection_class(api: HttpApi) -> type[asyncio.Protocol]:
    """The class of connections that uvicorn makes one of for each client."""

    class UvicornConnection(HttpConnection):
        """A connection, made with the arguments that uvicorn gives a protocol of HTTP."""

        def __init__(
            self,
            config: uvicorn.Config,
            server_state: Any,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(
                api,
                _loop or asyncio.get_running_loop(),
                server_state.connections,
                server_state.tasks,
                config.timeout_keep_alive,
            )

    return UvicornConnection


async def _no_application(scope: object, receive: object, send: object) -> None:
    """The ASGI application of a server whose connections answer requests themselves."""
    raise AssertionError("connections do not call the application")


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: the stop has an order, kept above."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        raise AssertionError("signals are handled by the server that owns this one")
