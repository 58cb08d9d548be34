"""Handlers of the router routes: configure, look, list, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from logqueue.api import replies
from logqueue.api.bodies import routers as router_bodies
from logqueue.api.paging import names_from, page_size, read_cursor, write_cursor
from logqueue.core import commands as cmd
from logqueue.core.routers import RouterState
from logqueue.errors import Forbidden
from logqueue.server.auth import Key
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.members import reply_with, show_members
from logqueue.server.http.requests import HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

_OUTSIDE = "this key may not access topics outside its prefixes"


class RouterRoutes:
    """The router half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("put_router")
    def put(self, request: HttpRequest) -> PendingReply:
        """`PUT /v0/routers/:router`: create, or replace the options."""
        dispatcher = self._service.require_serving()
        body = router_bodies.read_router_body(request.body, request.ignore)
        command = router_bodies.router_command(request.name, body)
        for topic in (command.source, command.dest):
            if not request.allows(topic):
                raise Forbidden(_OUTSIDE, {"topic": topic})
        return dispatcher.submit(command, _router_put, (request, command))

    @serves("get_router")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/routers/:router`: options and progress, once it has caught up."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        router = engine.state.router(request.name)
        source, dest = _ends(engine, router)
        _require_ends_allowed(request, source, dest)
        topic = engine.topic_now(dest)
        body = replies.router_members(router.name, source, dest, router.options)
        body["forwarded_total"] = router.forwarded
        durable = max(engine.control_mark, topic.mark_durable)
        return dispatcher.hold(body, topic.mark_written, durable, show_members, request)

    @serves("list_routers")
    def list(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/routers`: a page of routers in name order."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        query = request.query
        size = page_size(query.get("page_size"))
        after = read_cursor(query.get("cursor"))
        names = _names(engine, query, after, request.key)
        visible = (
            entry
            for name in names
            if _is_visible(request, entry := _entry(engine, name))
            and query.get("source", entry["source"]) == entry["source"]
            and query.get("dest", entry["dest"]) == entry["dest"]
        )
        found = [*islice(visible, size + 1)]
        page: dict[str, Any] = {"routers": found[:size]}
        if len(found) > size:
            page["next_cursor"] = write_cursor(found[size - 1]["router"])
        return dispatcher.hold(page, 0, engine.control_mark, show_members, request)

    @serves("delete_router")
    def drop(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/routers/:router`: delete the router, keep its topics and copies."""
        dispatcher: Dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        router = engine.state.routers.get(request.name)
        if router is not None:
            _require_ends_allowed(request, *_ends(engine, router))
        return dispatcher.submit(cmd.DropRouter(request.name), _router_dropped, request)


def _router_put(
    context: tuple[HttpRequest, cmd.PutRouter], result: cmd.RouterPutResult, spent: Spent
) -> Reply:
    request, command = context
    members = replies.router_members(request.name, command.source, command.dest, command.options)
    created = {"router": members.pop("router"), "created": result.created}
    return reply_with(request, {**created, **members}, 201 if result.created else 200)


def _router_dropped(request: HttpRequest, result: cmd.RouterDropResult, spent: Spent) -> Reply:
    return reply_with(request, {"router": request.name, "deleted": result.deleted})


def _names(engine: Engine, query: Mapping[str, str], after: str, key: Key | None) -> Iterable[str]:
    """Names of routers that may be asked for, behind a position, ascending."""
    state = engine.state
    prefix = query.get("prefix", "")
    for field, edges in (("source", state.routers_out), ("dest", state.routers_in)):
        if field in query:
            topic = state.topics.get(query[field])
            routers = edges.get(topic.number, ()) if topic is not None else ()
            names = (router.name for router in routers)
            return sorted(name for name in names if name > after and name.startswith(prefix))
    return names_from(state.routers, prefix, after, key)


def _ends(engine: Engine, router: RouterState) -> tuple[str, str]:
    instances = engine.state.instances
    return instances[router.source].name, instances[router.dest].name


def _entry(engine: Engine, name: str) -> dict[str, Any]:
    """A router as the list shows it."""
    router: RouterState = engine.state.routers[name]
    source, dest = _ends(engine, router)
    return {
        "router": name,
        "source": source,
        "dest": dest,
        "guarantee": router.options.guarantee,
        "forwarded_total": router.forwarded,
    }


def _is_visible(request: HttpRequest, entry: dict[str, Any]) -> bool:
    return all(request.allows(entry[field]) for field in ("router", "source", "dest"))


def _require_ends_allowed(request: HttpRequest, *topics: str) -> None:
    """The path's name was checked already; both ends must be allowed too.

    Raises:
        Forbidden: One is outside the key's prefixes; it is not named, since the caller did not.
    """
    if not all(map(request.allows, topics)):
        raise Forbidden(_OUTSIDE)
