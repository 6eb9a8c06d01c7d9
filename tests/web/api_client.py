"""What a program sends to the server: JSON with the token; and raw bytes, where no client would send such a thing."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tailwise.campaign.ledger import Ledger
from tailwise.web.serve import Options, Serving, running

from .conftest import Plan, make_campaign


def new_key() -> str:
    return uuid.uuid4().hex


@dataclass
class Api:
    """A campaign, its server, and a client with the token."""

    folder: Path
    serving: Serving
    client: httpx.Client

    def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - whatever JSON has
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:  # noqa: ANN401
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, **body: Any) -> tuple[int, str]:  # noqa: ANN401
        """The status and the code of an answer that says no."""
        answer = self.client.post(path, json=body)
        return answer.status_code, answer.json()["error"]["code"]

    def lease(self, annotator: str = "ada", count: int = 64) -> list[str]:
        return [image["key"] for image in self.post("/api/lease", annotator=annotator, count=count)["images"]]

    def answer(self, image: str, class_id: int | None = 1, annotator: str = "ada", **more: Any) -> Any:  # noqa: ANN401
        """Answer one image; gives what the server says of it."""
        said = {
            "key": new_key(),
            "image": image,
            "kind": "label" if class_id else "other",
            "class_id": class_id,
            **more,
        }
        return self.post("/api/answers", annotator=annotator, answers=[said])["results"][0]

    def wait_for_job(self, patience: float = 600.0) -> Any:  # noqa: ANN401
        end = time.monotonic() + patience
        while time.monotonic() < end:
            job = self.get("/api/job")
            if job["state"] != "running":
                return job
            time.sleep(0.05)
        raise AssertionError(f"the job still runs after {patience:g} s")

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Asked of the ledger itself, beside the server."""
        with Ledger.open(self.folder, read_only=True) as ledger:
            return [tuple(row) for row in ledger.read(sql, values)]


@contextmanager
def serving_api(home: Path, options: Options | None = None, **plan: Any) -> Iterator[Api]:  # noqa: ANN401 - of Plan
    """A fresh campaign with a server on a free port."""
    make_campaign(home, Plan(**plan))
    with reopened(home / "campaign", options) as api:
        yield api


@contextmanager
def reopened(folder: Path, options: Options | None = None) -> Iterator[Api]:
    """A server for a campaign that is there."""
    with running(folder, options or Options(port=0)) as serving:
        token = {"X-Tailwise-Token": serving.token} if serving.token else {}
        with httpx.Client(base_url=serving.url, headers=token, timeout=30, trust_env=False) as client:
            yield Api(folder, serving, client)


@dataclass(frozen=True)
class Raw:
    """An answer, taken apart by hand."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


def exchange(port: int, *parts: bytes, patience: float = 10.0) -> Raw:
    """Send bytes as they are, and read the answer until the server closes or has said all."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as line:
        for part in parts:
            line.sendall(part)
        return read_answer(line)


def read_answer(line: socket.socket, received: bytes = b"") -> Raw:
    """An answer of which some bytes may have been received already."""
    while b"\r\n\r\n" not in received:
        more = line.recv(65536)
        assert more, received
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        more = line.recv(65536)
        assert more, body
        body += more
    return Raw(int(first.split()[1]), headers, body)


def request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """The bytes of a request with exactly these headers."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
