"""The table of routes.

Owns: which handler serves which path.
"""

from __future__ import annotations

from logqueue.api.bodies.large import read_packed_append, read_packed_stage
from logqueue.api.openapi import OpenApiRoute
from logqueue.server.auth import Scope as KeyScope
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
from logqueue.server.http.routing import NO_SCOPE, Body, Route, RouteTable
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service

READ, WRITE, DELETE, ADMIN = KeyScope.READ, KeyScope.WRITE, KeyScope.DELETE, KeyScope.ADMIN
TOPICS = "/v0/topics"
TOPIC = "/v0/topics/*"
PRODUCER = "/v0/producers/*"
EPOCH = "/v0/producers/*/epochs/*"
SEGMENTS = "/v0/log/segments"
ROUTERS = "/v0/routers"
ROUTER = "/v0/routers/*"


def routes(service: Service, metrics: Metrics) -> list[Route]:
    """Every route of the API."""
    topics = TopicRoutes(service)
    queues = QueueRoutes(service)
    routers = RouterRoutes(service)
    jobs = JobRoutes(service)
    producers = ProducerRoutes(service)
    operations = OperationRoutes(service, metrics)
    logs = LogRoutes(service, metrics)
    work = WorkRoute(service).work
    watch = WatchRoutes(service)
    sockets = SocketRoutes(service)
    openapi = OpenApiRoute()
    none, required, optional = Body.IGNORED, Body.REQUIRED, Body.OPTIONAL
    table = [
        Route("GET", TOPICS, READ, none, topics.list),
        Route("PUT", TOPIC, ADMIN, optional, topics.put),
        Route("GET", TOPIC, READ, none, topics.get),
        Route("PATCH", TOPIC, ADMIN, Body.MERGE_PATCH, topics.patch),
        Route("POST", TOPIC + "/ensure", ADMIN, optional, topics.ensure),
        Route("DELETE", TOPIC, DELETE, none, topics.drop),
        Route("POST", TOPIC, WRITE, required, topics.append, in_steps=read_packed_append),
        Route("POST", TOPIC + "/diff", READ, optional, topics.diff),
        Route("POST", TOPIC + "/delete", DELETE, required, topics.delete),
        Route("GET", TOPIC + "/seq_at", READ, none, topics.seq_at),
        Route("POST", TOPIC + "/claim", READ | WRITE, Body.NOT_EMPTY, queues.claim),
        Route("POST", TOPIC + "/ack", WRITE, required, queues.ack),
        Route("POST", TOPIC + "/nack", WRITE, required, queues.nack),
        Route("POST", TOPIC + "/extend", WRITE, required, queues.extend),
        Route("POST", TOPIC + "/reject", WRITE, required, queues.reject),
        Route("GET", TOPIC + "/work", READ | WRITE, none, stream=work),
        Route("POST", TOPIC + "/pause", ADMIN, none, topics.pause),
        Route("POST", TOPIC + "/resume", ADMIN, none, topics.resume),
        Route("GET", TOPIC + "/jobs", READ, none, jobs.list),
        Route("GET", TOPIC + "/jobs/*", READ, none, jobs.get),
        Route("DELETE", TOPIC + "/jobs/*", DELETE, none, jobs.cancel),
        Route("DELETE", TOPIC + "/keys/*", DELETE, none, jobs.cancel_key),
        Route("POST", TOPIC + "/purge", DELETE, required, jobs.purge),
        Route("POST", TOPIC + "/release", ADMIN, required, jobs.release),
        Route("POST", TOPIC + "/redrive", WRITE | DELETE, required, jobs.redrive),
        Route("GET", TOPIC + "/workers", READ, none, jobs.workers),
        Route("GET", PRODUCER, READ, none, producers.get),
        Route(
            "POST", EPOCH + "/stage", WRITE, required, producers.stage, in_steps=read_packed_stage
        ),
        Route("POST", EPOCH + "/commit", WRITE, required, producers.commit),
        Route("GET", ROUTERS, READ, none, routers.list),
        Route("PUT", ROUTER, ADMIN, required, routers.put),
        Route("GET", ROUTER, READ, none, routers.get),
        Route("DELETE", ROUTER, DELETE, none, routers.drop),
        Route("GET", SEGMENTS, READ, none, logs.list),
        Route("GET", SEGMENTS + "/*", READ, none, logs.fetch, bulk=True),
        Route("POST", "/v0/watch", READ, required, watch.create),
        Route("GET", "/v0/watch/*", NO_SCOPE, none, stream=watch.open, late_key=True),
        Route("GET", "/v0/ws", NO_SCOPE, none, sockets.refuse, socket=sockets.open),
        Route("GET", "/v0/health", NO_SCOPE, none, operations.health, probe=True),
        Route("GET", "/healthz", NO_SCOPE, none, operations.health, probe=True),
        Route("GET", "/v0/ready", NO_SCOPE, none, operations.ready, probe=True),
        Route("GET", "/readyz", NO_SCOPE, none, operations.ready, probe=True),
        Route("GET", "/v0/metrics", READ, none, operations.metrics),
        Route("GET", "/v0/openapi.json", NO_SCOPE, none, openapi.get),
    ]
    openapi.describe(table)
    return table


def http_api(service: Service, metrics: Metrics) -> HttpApi:
    """What answers the requests of one server."""
    return HttpApi(service, RouteTable(routes(service, metrics)), metrics)
