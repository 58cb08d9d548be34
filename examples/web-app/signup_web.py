"""A web application that hands slow work to a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from signup_tasks import app, send_welcome
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from logqueue import LogqueueError


async def sign_up(request: Request) -> Response:
    """Take somebody in; the mail goes out later."""
    mail = (await request.json())["mail"]
    job = send_welcome.with_options(key=mail)
    try:
        seq = await job.send_async(mail)
    except LogqueueError as error:
        return JSONResponse({"error": error.message}, status_code=503)
    return JSONResponse({"job": seq}, status_code=202)


@asynccontextmanager
async def lifespan(web: Starlette) -> AsyncIterator[None]:
    """Close the connections to the queue with the application."""
    yield
    await app.aclose()


web = Starlette(routes=[Route("/signups", sign_up, methods=["POST"])], lifespan=lifespan)
