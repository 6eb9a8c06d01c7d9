"""Requests made up from the OpenAPI document, sound and unsound: none breaks the server, each answer is as documented.

The server is real and has all routes; the campaign has images, a round, answers and a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from tailwise.campaign.service import Campaign
from tailwise.web.app import make_app
from tailwise.web.serve import Options
from tailwise.web.settings import WebSettings

from .api_client import Api, serving_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("schemathesis")
    options = Options(port=0, ml_backend=True)
    with serving_api(home, options, images=6, guessing=True, settings={"overlap": 2}) as made:
        for annotator, cls in (("ada", 1), ("bob", 2)):
            made.answer(made.lease(annotator)[0], cls, annotator)
        yield made


# Only the document is taken from this app, which needs no campaign; the requests go to the server.
DOCUMENT = make_app(cast(Campaign, None), WebSettings("x" * 32, ml_backend=True)).openapi()
operations = schemathesis.openapi.from_dict(DOCUMENT)


@operations.parametrize()
@settings(
    max_examples=20, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_every_operation_answers_as_documented(case: schemathesis.Case, api: Api) -> None:
    # A name of the right length may still be refused: it has rules that JSON Schema cannot say. The token is set here,
    # so a request without one is none of these; tests/web/test_security.py has those. And in an address everything is
    # text: a list of one name cannot be told from the name.
    left_out = [positive_data_acceptance, ignored_auth, *([negative_data_rejection] if case.method == "GET" else [])]
    case.headers["X-Tailwise-Token"] = api.serving.token
    case.call_and_validate(base_url=api.serving.url, excluded_checks=left_out, timeout=30)


def test_the_document_is_that_of_the_server(api: Api) -> None:
    assert api.get("/api/openapi.json") == DOCUMENT


def test_afterwards_the_server_and_its_ledger_are_sound(api: Api) -> None:
    assert api.get("/api/state")["campaign"]["name"] == "Birds"
    assert api.rows("PRAGMA integrity_check") == [("ok",)]
    assert api.rows("PRAGMA foreign_key_check") == []
