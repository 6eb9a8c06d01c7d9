"""The app of one campaign: the guard, the routes and the page, and one shape for every error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import LedgerReplaced, TailwiseError
from . import label_studio, routes
from .errors import Refusal, refusal_of
from .images import TooManyPictures
from .jobs import AlreadyRunning, Unfinished
from .security import Guard
from .service import CannotWrite, Desk
from .settings import WebSettings

if TYPE_CHECKING:
    from ..campaign.service import Campaign


TOKEN = APIKeyHeader(name="X-Tailwise-Token", auto_error=False, description="the token in the printed link")
HTTP_CODES = {404: "unknown", 405: "wrong_method"}


def make_app(campaign: Campaign, settings: WebSettings) -> FastAPI:
    """An ASGI app; its threads live from startup to shutdown, the campaign stays the caller's."""
    app = FastAPI(
        title="Tailwise", version=__version__, description="Labelling one campaign.", openapi_url="/api/openapi.json",
        docs_url=None, redoc_url=None, lifespan=_lifespan(campaign, settings), redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    locked = [Security(TOKEN)] if settings.token is not None else []
    included = [(routes.api, locked), (routes.page, locked)]
    if settings.ml_backend:
        included += [(label_studio.router, locked), (label_studio.pulse, [])]
    for router, dependencies in included:
        app.include_router(router, dependencies=dependencies)
    app.add_exception_handler(TailwiseError, _tailwise_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, settings=settings, posts=_posts([router for router, _ in included]))
    return app


def _posts(routers: Sequence[APIRouter]) -> frozenset[str]:
    """The paths that take a body, without the OpenAPI document: making it took most of the time of a start."""
    found = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return frozenset(route.path for route in found if "POST" in (route.methods or ()))


def _lifespan(campaign: Campaign, settings: WebSettings) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.desk = desk = Desk(campaign.ledger, settings)
        try:
            yield
        finally:
            desk.close()

    return life


async def _tailwise_error(request: Request, error: Exception) -> Response:
    """What an error of the library is for who asked: without the paths of this machine, which the log has."""
    assert isinstance(error, TailwiseError)
    desk: Desk = request.app.state.desk
    if isinstance(error, LedgerReplaced):
        desk.log_replaced(error)
    refusal = _refusal(error)
    headers = {"Retry-After": "1"} if refusal.status == 429 else None
    return _response(replace(refusal, message=desk.public(refusal.message)), headers)


def _refusal(error: TailwiseError) -> Refusal:
    if isinstance(error, AlreadyRunning | Unfinished):
        return Refusal(409, "unfinished" if isinstance(error, Unfinished) else "running", str(error))
    if isinstance(error, CannotWrite):
        return Refusal(500, "cannot_write", str(error))
    if isinstance(error, TooManyPictures):
        return Refusal(429, "too_many", str(error))
    return refusal_of(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _response(Refusal(422, "invalid", "; ".join(_told(fault) for fault in error.errors()[:5])))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "refused")
    return _response(Refusal(error.status_code, code, f"{error.detail}; see /api/openapi.json"), error.headers)


def _told(fault: dict[str, Any]) -> str:
    """Where and what; the value itself stays out, it may be a megabyte."""
    where: Sequence[object] = fault["loc"]
    return f"{'.'.join(str(part)[:40] for part in where)}: {fault['msg']}"


def _response(refusal: Refusal, headers: Any = None) -> Response:  # noqa: ANN401 — a mapping or None
    return Response(refusal.body(), refusal.status, headers, "application/json")
