"""The body of configuring a router.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.api.bodies.reader import BodyReader
from logqueue.core import commands as cmd
from logqueue.model.config import Guarantee, RouterOptions
from logqueue.model.tag_predicate import Predicate


class RouterBody(msgspec.Struct):
    """`PUT /v0/routers/:router`."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"


read_router_body = BodyReader(RouterBody).read


def router_command(router: str, body: RouterBody) -> cmd.PutRouter:
    """The command of a decoded router body.

    Raises:
        InvalidRequest: The filter is a predicate of no known form.
    """
    options = RouterOptions(
        body.preserve_node,
        body.preserve_tag,
        None if body.filter is None else Predicate.parse(body.filter),
        body.allow_cycle,
        body.guarantee,
    )
    return cmd.PutRouter(router, body.source, body.dest, options, body.create_dest)
