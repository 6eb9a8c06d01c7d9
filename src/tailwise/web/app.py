"""The app of one campaign: middleware, routes, the page's own files, and one shape for every error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from starlette.exceptions import HTTPException

from .. import __version__
from ..campaign.search import NotReady
from ..errors import BadInput, LedgerBusy, LedgerFault, LedgerReplaced, NewerLedger, TailwiseError, UnknownName
from . import classes, dashboard, gallery, review, routes
from . import map as feature_map
from .images import TooManyImages
from .jobs import AlreadyRunning, Unfinished
from .routes import OwnerOnly
from .security import ErrorResponse, SecurityMiddleware, log_refused
from .service import CannotWrite, Service
from .settings import WebSettings

if TYPE_CHECKING:
    from ..campaign.service import Campaign

TOKEN = APIKeyHeader(name="X-Tailwise-Token", auto_error=False, description="the token in a printed link")
JSON = "application/json"
HTTP_CODES = {404: "unknown", 405: "wrong_method"}
# Status and code of each error, the first that fits; any other error of the library is 409 "impossible".
STATUS: tuple[tuple[type[TailwiseError], int, str], ...] = (
    (OwnerOnly, 403, "owner_only"),  # the page knows this code: the token fits, but not for this
    (Unfinished, 409, "unfinished"),
    (AlreadyRunning, 409, "running"),
    (CannotWrite, 500, "cannot_write"),
    (NotReady, 409, "not_ready"),
    (TooManyImages, 429, "too_many"),
    (UnknownName, 404, "unknown"),
    (LedgerBusy, 409, "busy"),
    (NewerLedger, 409, "newer_ledger"),
    (LedgerReplaced, 503, "ledger_replaced"),  # the page knows this code: it keeps its answers until a restart
    (LedgerFault, 500, "storage"),  # not the client's mistake: it may send the same again
    (BadInput, 400, "bad_input"),
)


def make_app(campaign: Campaign, settings: WebSettings) -> FastAPI:
    """An ASGI app; its threads live from startup to shutdown, the campaign stays the caller's."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = Service(campaign.ledger, settings)
        try:
            yield
        finally:
            service.close()

    app = FastAPI(
        title="Tailwise", version=__version__, description="Labelling one campaign.", openapi_url="/api/openapi.json",
        docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )  # fmt: skip
    locked = [Security(TOKEN)] if settings.token is not None else []
    views = (
        routes.api, routes.page, gallery.api, feature_map.api, review.api, dashboard.api, classes.classes_api
    )  # fmt: skip
    included = [(one, locked) for one in views]
    if settings.ml_backend:
        included += [(routes.label_studio_api, locked), (routes.label_studio_health, [])]
    posts: set[str] = set()  # not from the OpenAPI document: making it would take most of the time of a start
    for router, dependencies in included:
        app.include_router(router, dependencies=dependencies)
        posts |= {one.path for one in router.routes if isinstance(one, APIRoute) and "POST" in (one.methods or ())}
    app.add_exception_handler(TailwiseError, _on_library_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(SecurityMiddleware, settings=settings, posts=frozenset(posts))
    return app


def error_response(error: TailwiseError) -> ErrorResponse:
    """How an error of the library is sent.

    >>> error_response(UnknownName("there is no image 'abc'")).status
    404
    """
    status, code = next(
        ((status, code) for kind, status, code in STATUS if isinstance(error, kind)), (409, "impossible")
    )
    return ErrorResponse(status, code, str(error))


async def _on_library_error(request: Request, error: Exception) -> Response:
    """Responses do not contain paths of this machine; the log does."""
    assert isinstance(error, TailwiseError)
    service: Service = request.app.state.service
    if isinstance(error, LedgerReplaced):
        service.log_replaced(error)
    found = error_response(error)
    log_refused(request.scope, found, service.settings)
    headers = {"Retry-After": "1"} if found.status == 429 else None
    return Response(replace(found, message=service.public(found.message)).body(), found.status, headers, JSON)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    """Where and what; the values stay out, they may be megabytes."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(str(part)[:40] for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5]]
    found = ErrorResponse(422, "invalid", "; ".join(faults))
    log_refused(request.scope, found, request.app.state.service.settings)
    return Response(found.body(), 422, media_type=JSON)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, code = error.status_code, HTTP_CODES.get(error.status_code, "refused")
    found = ErrorResponse(status, code, f"{error.detail}; see /api/openapi.json")
    return Response(found.body(), status, error.headers, JSON)
