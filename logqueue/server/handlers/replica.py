"""Handlers of the replica of the log."""

from __future__ import annotations

import msgspec

from logqueue.api import replies
from logqueue.api.bodies.replica import PromoteBody, read_promote_body
from logqueue.errors import NotFound
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import ReplicaRole, Service
from logqueue.server.status import replica_status


class ReplicaRoutes:
    """What operators ask about the replica."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("replica")
    def status(self, request: HttpRequest) -> Reply:
        """`GET /v0/replica`: who writes, and how far the replica is behind."""
        status = {
            name: value
            for name, value in msgspec.to_builtins(replica_status(self._service)).items()
            if value is not None
        }
        return Reply(replies.encode(status))

    @serves("promote")
    def promote(self, request: HttpRequest) -> Answer:
        """`POST /v0/replica/promote`: a standby becomes the writer."""
        body: PromoteBody = (
            read_promote_body(request.body, request.ignore) if request.body else PromoteBody()
        )
        return self._promote(request, self._role(), force=body.force)

    async def _promote(self, request: HttpRequest, role: ReplicaRole, *, force: bool) -> Reply:
        header = request.header(b"authorization")
        authorization = header.decode("latin-1") if header is not None else None
        epoch = await role.promote(authorization, force=force)
        return _timed(request, {"role": "writer", "epoch": epoch})

    @serves("hand_over")
    def hand_over(self, request: HttpRequest) -> Answer:
        """`POST /v0/replica/hand_over`: the writer ends."""
        return self._hand_over(request, self._role())

    async def _hand_over(self, request: HttpRequest, role: ReplicaRole) -> Reply:
        epoch = await role.hand_over()
        return _timed(request, {"handed_over": True, "epoch": epoch})

    def _role(self) -> ReplicaRole:
        role = self._service.role
        if role is None:
            raise NotFound("this server has no replica: set LOGQUEUE_REPLICA")
        return role


def _timed(request: HttpRequest, members: dict[str, object]) -> Reply:
    performance = msgspec.Raw(replies.performance(request.began))
    return Reply(replies.encode({**members, "performance": performance}))
