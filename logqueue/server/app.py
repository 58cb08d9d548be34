"""The table of routes, and the application made of it.

Owns: which handler serves which path. The API is served without passing through the framework's
router (a request costs tens of microseconds, and that is what a router costs too); Starlette keeps
the rest of the ASGI life: lifespan and WebSockets.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from logqueue.server.auth import Scope as KeyScope
from logqueue.server.http import HttpApi
from logqueue.server.metrics import Metrics
from logqueue.server.operations import OperationRoutes
from logqueue.server.queue_routes import QueueRoutes
from logqueue.server.routing import NO_SCOPE, Body, Route, Router
from logqueue.server.service import Service
from logqueue.server.topic_routes import TopicRoutes
from logqueue.server.work import WorkRoute

READ, WRITE, DELETE, ADMIN = KeyScope.READ, KeyScope.WRITE, KeyScope.DELETE, KeyScope.ADMIN
TOPICS = "/v0/topics"
TOPIC = "/v0/topics/*"


def routes(service: Service, metrics: Metrics) -> list[Route]:
    """Every route of the API."""
    topics = TopicRoutes(service)
    queues = QueueRoutes(service)
    operations = OperationRoutes(service, metrics)
    work = WorkRoute(service).work
    none, required, optional = Body.IGNORED, Body.REQUIRED, Body.OPTIONAL
    return [
        Route("GET", TOPICS, READ, none, topics.list),
        Route("PUT", TOPIC, ADMIN, optional, topics.put),
        Route("GET", TOPIC, READ, none, topics.get),
        Route("DELETE", TOPIC, DELETE, none, topics.drop),
        Route("POST", TOPIC, WRITE, required, topics.append),
        Route("POST", TOPIC + "/diff", READ, optional, topics.diff),
        Route("POST", TOPIC + "/delete", DELETE, required, topics.delete),
        Route("POST", TOPIC + "/claim", READ | WRITE, Body.NOT_EMPTY, queues.claim),
        Route("POST", TOPIC + "/ack", WRITE, required, queues.ack),
        Route("POST", TOPIC + "/nack", WRITE, required, queues.nack),
        Route("POST", TOPIC + "/extend", WRITE, required, queues.extend),
        Route("GET", TOPIC + "/work", READ | WRITE, none, stream=work),
        Route("GET", "/v0/health", NO_SCOPE, none, operations.health, probe=True),
        Route("GET", "/healthz", NO_SCOPE, none, operations.health, probe=True),
        Route("GET", "/v0/ready", NO_SCOPE, none, operations.ready, probe=True),
        Route("GET", "/readyz", NO_SCOPE, none, operations.ready, probe=True),
        Route("GET", "/v0/metrics", READ, none, operations.metrics),
    ]


class LogqueueApp(Starlette):
    """The ASGI application."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        super().__init__()
        self.api = HttpApi(service, Router(routes(service, metrics)), metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] == "http":
            await self.api(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
