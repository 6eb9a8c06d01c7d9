"""A program that labels over the HTTP API, as the page does: the address of a server in, its answers out.

Of the standard library alone: it stands for whoever is at the other end of the line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE = 60.0  # seconds for one answer of the server
GLANCE = 0.05  # seconds between two looks at a job


class SaidNo(Exception):
    """The server answered, and refused."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class Line:
    """One connection to a server, kept open; an OSError or HTTPException means that nobody answered."""

    def __init__(self, url: str, token: str | None, patience: float = PATIENCE) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=patience)
        self._headers = {"X-Tailwise-Token": token} if token else {}

    def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - whatever JSON has
        """Ask something."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, **body: Any) -> Any:  # noqa: ANN401 - whatever JSON has
        """Change something."""
        return self._ask("POST", path, json.dumps(body).encode())

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:  # noqa: ANN401
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        told = json.loads(response.read())
        if response.status != 200:
            raise SaidNo(response.status, told["error"]["code"], told["error"]["message"])
        return told


@dataclass(slots=True)
class Labeller:
    """Somebody who knows what each image shows, and says so."""

    line: Line
    name: str
    truth: Callable[[str], int]  # key of an image → id of its class
    count: int = 32  # images asked for at once
    said: int = field(default=0, init=False)

    def finish_round(self) -> int:
        """Answer all that is left of the open round; gives how many answers that took."""
        before = self.said
        for images in self._leased():
            self._answer(images)
        return self.said - before

    def _leased(self) -> Iterator[list[str]]:
        while True:
            told = self.line.post("/api/lease", annotator=self.name, count=self.count)
            keys = [image["key"] for image in told["images"]]
            if not keys:
                return
            yield keys

    def _answer(self, images: Sequence[str]) -> None:
        answers = [
            {"key": f"{self.name}-{image}-{self.said + place:06d}", "image": image, "kind": "label",
             "class_id": self.truth(image), "seconds": 1.0}
            for place, image in enumerate(images)
        ]  # fmt: skip
        told = self.line.post("/api/answers", annotator=self.name, answers=answers)
        refused = [one for one in told["results"] if not one["saved"]]
        if refused:
            raise SaidNo(200, refused[0]["error"]["code"], refused[0]["error"]["message"])
        self.said += len(answers)


def open_next_round(line: Line, patience: float = 900.0, **wishes: Any) -> int:  # noqa: ANN401 - of POST /api/next
    """Have the next round chosen, and wait until it is open; gives its number."""
    line.post("/api/next", **wishes)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        job = line.get("/api/job")
        if job["state"] == "done":
            return int(job["round"])
        if job["state"] == "failed":
            raise SaidNo(200, "failed", str(job["error"]))
        time.sleep(GLANCE)
    raise TimeoutError(f"the next round was not chosen within {patience:g} s")
