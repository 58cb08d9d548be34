"""Spark sessions that suit the jobs of the pipeline.

Owns: what a session needs to start on this machine, on a cluster or over Spark Connect, and its
end. Must not know: any job. pyspark is imported when a session is asked for, not before.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from logqueue.pipeline.engines.spark.session import class_archive, java, packing, scratch
from logqueue.pipeline.errors import PipelineError, as_pipeline_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOCAL = "local[*]"
REGISTRATION = packing.REGISTRATION
"""Where a checkout has the packages by which Spark finds our formats; a wheel has them on top."""

INSTALL = "the data pipeline needs more packages: pip install 'logqueue[spark]'"
INSTALL_CONNECT = "Spark Connect needs more packages: pip install 'logqueue[spark-connect]'"

MEMORY_MIN_MB, MEMORY_MAX_MB = 1024, 8192

LOOPBACK_SETTINGS = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
"""Keep a driver on this machine off the network."""

NATIVE_ASSENT_VERSION = 22
"""From this Java on, libraries that load native code are warned of unless that is allowed."""

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Off in Spark by default; our sources skip whole segments by them.
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""SQL settings that jobs count on, whatever the master."""

COLLECTOR = "-XX:+UseParallelGC"
"""Jobs want throughput: Java's default keeps pauses short, for which all code that it compiles and
runs has more to do."""
OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

PY_FILES = "spark.submit.pyFiles"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

SMALL = {
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

LOG_SETTINGS = """\
status = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
# At the root's level too, else Java tells people which level it sets.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
"""
LOG_LEVELS = ("off", "error", "warn", "info", "debug")


def require_packages(*, connect: bool = False) -> None:
    """Refuse where pyspark or pyarrow is missing.

    Args:
        connect: Whether what Spark Connect needs must be there too.

    Raises:
        PipelineError: Says what to install.
    """
    for name in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(name) is None:
            raise PipelineError(INSTALL)
    if connect:
        for name in ("grpc", "grpc_status", "zstandard"):
            if importlib.util.find_spec(name) is None:
                raise PipelineError(INSTALL_CONNECT)


def open_session(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "logqueue",
) -> SparkSession:
    """A session for jobs of the pipeline. One that is open already is given back as it is.

    Args:
        master: A Spark master; None for all cores of this machine, in this process's own Java.
        remote: A Spark Connect address, `sc://host:port`, or `local[N]` for a server of its own.
        conf: More settings. They go before ours.
        app_name: What Spark shows it as.

    Raises:
        PipelineError: A package or Java is missing, or Spark does not start.
    """
    if master is not None and remote is not None:
        raise PipelineError("a session has a master or a remote address, not both")
    require_packages(connect=remote is not None)
    given = dict(conf or {})
    try:
        if remote is not None:
            return _connected(remote, given, app_name)
        packing.require_usable(filter(None, given.get(PY_FILES, "").split(",")))
        return _started(master, given, app_name)
    except PipelineError:
        raise
    except Exception as error:
        raise as_pipeline_error(error) from error


@contextlib.contextmanager
def opened(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "logqueue",
) -> Iterator[SparkSession]:
    """A session as a context; see `open_session`. One that was open before stays so."""
    require_packages()
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = open_session(master, remote, conf, app_name)
    try:
        yield spark
    except BaseException as error:
        if is_ours:
            # Stopping does not wait for tasks whose result is not needed.
            close_session(spark, at_once=not isinstance(error, Exception))
        raise
    if is_ours:
        close_session(spark)


def close_session(spark: SparkSession, *, at_once: bool = False) -> None:
    """End a session, and remove what it kept in temporary directories.

    Args:
        at_once: End its Java without waiting for tasks that still run. For sessions that run on
            this machine; others are only asked to stop.
    """
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if at_once and process is not None:
        # py4j would log that Java does not answer when it releases objects there.
        logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
        process.kill()
        process.wait()
    else:
        with contextlib.suppress(Exception):  # it may be gone already, with the Java it ran in
            spark.stop()
    scratch.remove()


def for_small_input(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a session on this machine is done soonest when there is little to read.

    Java then compiles in haste, and shuffles have few partitions. Given settings take precedence.
    """
    options = [SMALL[JAVA_OPTIONS], *filter(None, [conf.get(JAVA_OPTIONS)])]
    return {**SMALL, **conf, JAVA_OPTIONS: " ".join(options)}


def quicken_later() -> None:
    """Have the archive of classes made for sessions to come, by a process that outlives this."""
    with contextlib.suppress(PipelineError):
        class_archive.make_later(java.find(), java.cache_directory())


# -- local sessions and clusters -------------------------------------------------------------------


def _started(master: str | None, given: dict[str, str], app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    # spark-submit has started Java already, and has passed it all of its arguments.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    variables = _variables()
    builder = SparkSession.builder.appName(app_name)
    if not (is_submitted and master is None):
        builder = builder.master(master or LOCAL)
    is_local = not is_submitted and (master or LOCAL).startswith("local")
    folder = scratch.folder()
    settings = dict(ALWAYS)
    settings["spark.ui.showConsoleProgress"] = "false"
    if not is_submitted:
        settings.update(_java_settings(folder, given, variables))
    if is_local:
        settings.update(_local_settings(folder, variables))
    elif master is not None and _is_loopback(master):
        settings.update(LOOPBACK_SETTINGS)
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    # Both are kept: ours, and behind them what the caller gives.
    options = " ".join(filter(None, [settings.get(JAVA_OPTIONS), given.get(JAVA_OPTIONS)]))
    settings.update(given)
    if options:
        settings[JAVA_OPTIONS] = options
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(variables):
        spark = builder.getOrCreate()
    _quieten()
    if not is_local:
        # Executors have our code from here: what they may have installed can be of another version.
        spark.sparkContext.addPyFile(_packed(folder))
        _register(spark)
    return spark


def _packed(folder: Path) -> str:
    return str(packing.pack(folder / "logqueue.zip").path)


def _register(spark: SparkSession) -> None:
    """Name our formats to a session: those that Spark finds by itself reach executors without the
    code that was sent to them."""
    from logqueue.pipeline.engines.spark.formats.live_source import LogQueueSource
    from logqueue.pipeline.engines.spark.formats.wal_source import LogQueueWalSource

    spark.dataSource.register(LogQueueSource)
    spark.dataSource.register(LogQueueWalSource)


def _java_settings(
    folder: Path, given: Mapping[str, str], variables: dict[str, str]
) -> dict[str, str]:
    """What the Java gets that a session starts here; variables that it needs are added."""
    found = java.find()
    variables["JAVA_HOME"] = str(java.launcher_home(found, java.cache_directory()))
    options = [
        f"-Dlog4j2.configurationFile={_log_settings(folder)}",
        f"-Djava.io.tmpdir={folder}",
    ]
    if found.version >= NATIVE_ASSENT_VERSION:
        options.append("--enable-native-access=ALL-UNNAMED")
    options += collector(given, os.environ)
    if "-XX:SharedArchiveFile" not in given.get(JAVA_OPTIONS, ""):
        options += class_archive.options(found, java.cache_directory())
    return {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        JAVA_OPTIONS: " ".join(map(quoted, options)),
    }


def collector(given: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Java's option for the garbage collector; none where one is given, as Java refuses two."""
    options = [*given.values(), *(environment.get(name, "") for name in OPTION_VARIABLES)]
    return [] if any(map(_COLLECTOR.search, options)) else [COLLECTOR]


def _local_settings(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """What a session gets whose tasks run in the driver; variables that it needs are added."""
    variables["SPARK_LOCAL_IP"] = LOOPBACK
    variables["PYSPARK_PYTHON"] = variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return {
        **LOOPBACK_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.driver.memory": f"{_memory_mb()}m",
    }


def _variables() -> dict[str, str]:
    """Variables with which Spark's Python processes find our formats.

    Spark looks for packages named pyspark_* along the search path only, and the hooks by which a
    checkout is installed are not on it.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not REGISTRATION.is_dir() or str(REGISTRATION) in paths:
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(REGISTRATION), *filter(None, paths)])}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started inside, and for none that come later."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_loopback(master: str) -> bool:
    """Whether a cluster's master is on this machine."""
    host = master.partition("://")[2].rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def quoted(option: str) -> str:
    """One of Java's options, quoted for a list of options."""
    return f'"{option}"' if " " in option else option


def _log_level() -> str:
    level = os.environ.get("LOGQUEUE_SPARK_LOG", "off").lower()
    if level not in LOG_LEVELS:
        raise PipelineError(f"LOGQUEUE_SPARK_LOG must be one of {', '.join(LOG_LEVELS)}")
    return level


def _log_settings(folder: Path) -> Path:
    path = folder / "log4j2.properties"
    path.write_text(LOG_SETTINGS.format(level=_log_level()))
    return path


def _quieten() -> None:
    """Keep pyspark from logging each failure of a query that it raises as well."""
    from pyspark.logger import PySparkLogger

    if _log_level() == "off":
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True


def _memory_mb() -> int:
    """A quarter of this machine's memory, within bounds: what Java may use, not what it takes."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (ValueError, OSError, AttributeError):
        return MEMORY_MIN_MB
    return max(MEMORY_MIN_MB, min(MEMORY_MAX_MB, total // 4))


# -- Spark Connect ---------------------------------------------------------------------------------


def _connected(remote: str, given: dict[str, str], app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    is_local = remote.startswith("local")
    folder = scratch.folder()
    settings, variables = dict(ALWAYS), _variables()
    if is_local:
        settings.update(_java_settings(folder, given, variables))
        settings.update(_local_settings(folder, variables))
    builder = SparkSession.builder.remote(remote).appName(app_name)
    for name, value in {**settings, **given}.items():
        builder = builder.config(name, value)
    with _environment(variables):
        spark = builder.getOrCreate()
    _quieten()
    if not is_local:
        spark.addArtifacts(_packed(folder), pyfile=True)
        _register(spark)
    return spark
