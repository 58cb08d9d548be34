"""The routes of the API.

Owns: which objects have the handlers.
"""

from __future__ import annotations

from logqueue.api.operations import OPERATIONS
from logqueue.server.handlers.jobs import JobRoutes
from logqueue.server.handlers.logs import LogRoutes
from logqueue.server.handlers.probes import OperationRoutes
from logqueue.server.handlers.producers import ProducerRoutes
from logqueue.server.handlers.queues import QueueRoutes
from logqueue.server.handlers.routers import RouterRoutes
from logqueue.server.handlers.sockets import SocketRoutes
from logqueue.server.handlers.topics import TopicRoutes
from logqueue.server.handlers.watch import WatchRoutes
from logqueue.server.handlers.work import WorkRoute
from logqueue.server.http.api import HttpApi
from logqueue.server.http.routing import Route, RouteTable, routes_of
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service


def routes(service: Service, metrics: Metrics) -> list[Route]:
    """Every route of the API."""
    return routes_of(
        OPERATIONS,
        (
            TopicRoutes(service),
            QueueRoutes(service),
            JobRoutes(service),
            ProducerRoutes(service),
            RouterRoutes(service),
            LogRoutes(service, metrics),
            WorkRoute(service),
            WatchRoutes(service),
            SocketRoutes(service),
            OperationRoutes(service, metrics),
        ),
    )


def http_api(service: Service, metrics: Metrics) -> HttpApi:
    """What answers the requests of one server."""
    return HttpApi(service, RouteTable(routes(service, metrics)), metrics)
