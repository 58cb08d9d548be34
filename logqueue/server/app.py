"""The routes of the API, and those of pages.

Owns: which objects have the handlers.
"""

from __future__ import annotations

from logqueue.api.openapi import document
from logqueue.api.operations import OPERATIONS
from logqueue.api.operations.row import Body
from logqueue.model.clock import SystemClock
from logqueue.model.scopes import NO_SCOPE
from logqueue.server.handlers.backups import BackupRoutes
from logqueue.server.handlers.dead_letters import DeadLetterRoutes
from logqueue.server.handlers.job_batches import JobBatchRoutes
from logqueue.server.handlers.job_statuses import JobStatusRoutes
from logqueue.server.handlers.jobs import JobRoutes
from logqueue.server.handlers.logs import LogRoutes
from logqueue.server.handlers.operations import BackgroundRoutes
from logqueue.server.handlers.probes import OperationRoutes
from logqueue.server.handlers.producers import ProducerRoutes
from logqueue.server.handlers.queues import QueueRoutes
from logqueue.server.handlers.replica import ReplicaRoutes
from logqueue.server.handlers.routers import RouterRoutes
from logqueue.server.handlers.schedules import ScheduleRoutes
from logqueue.server.handlers.server import ServerRoutes
from logqueue.server.handlers.sockets import SocketRoutes
from logqueue.server.handlers.stats import StatsRoutes
from logqueue.server.handlers.topics import TopicRoutes
from logqueue.server.handlers.watch import WatchRoutes
from logqueue.server.handlers.work import WorkRoute
from logqueue.server.handlers.workers import WorkerRoutes
from logqueue.server.http.api import HttpApi
from logqueue.server.http.asgi import AsgiHandler
from logqueue.server.http.routing import Route, RouteTable, routes_of
from logqueue.server.metrics import Metrics
from logqueue.server.pages.application import application, paths
from logqueue.server.service import Service
from logqueue.server.sqs.door import sqs_routes
from logqueue.server.stats.stats import ServerStats


def routes(service: Service, metrics: Metrics, stats: ServerStats | None = None) -> list[Route]:
    """Every route of the API."""
    if stats is None:
        stats = ServerStats(service, metrics, SystemClock())
    return routes_of(
        OPERATIONS,
        (
            TopicRoutes(service),
            QueueRoutes(service),
            JobRoutes(service),
            JobStatusRoutes(service),
            DeadLetterRoutes(service),
            ProducerRoutes(service),
            RouterRoutes(service),
            ScheduleRoutes(service),
            JobBatchRoutes(service),
            LogRoutes(service, metrics),
            ReplicaRoutes(service),
            ServerRoutes(service, metrics),
            BackupRoutes(service),
            WorkRoute(service),
            WatchRoutes(service),
            SocketRoutes(service),
            BackgroundRoutes(service),
            StatsRoutes(service, stats),
            WorkerRoutes(service),
            OperationRoutes(service, metrics),
        ),
    )


def page_routes(*, has_dashboard: bool) -> list[Route]:
    """Every page: no key is needed for any."""
    pages = application(lambda: document(OPERATIONS), has_dashboard=has_dashboard)
    handler = AsgiHandler(pages).answer
    return [
        Route(method, path, NO_SCOPE, Body.IGNORED, handler, late_key=True)
        for method, path in paths(pages)
    ]


def http_api(service: Service, metrics: Metrics, stats: ServerStats | None = None) -> HttpApi:
    """What answers the requests of one server."""
    pages = page_routes(has_dashboard=not service.settings.no_ui)
    foreign = sqs_routes(service) if service.settings.sqs else []
    table = RouteTable([*routes(service, metrics, stats), *pages, *foreign])
    return HttpApi(service, table, metrics)
