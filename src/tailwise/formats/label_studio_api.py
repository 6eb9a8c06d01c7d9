"""A running Label Studio, over its API: connects a project with the server of a campaign, and brings it the open round.

Label Studio has to know the server twice: as ML backend, which it asks for predictions and to train, and as webhook,
which gets the answers. Both carry the campaign's token in their URL; no other way reaches both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from ..errors import BadFile, BadInput
from ..files import read_regular, write_whole
from .label_studio import CONTROL, OBJECT, OTHER, label_config
from .reading import xml_of

KEY_VARIABLE = "LABEL_STUDIO_API_KEY"
FILE = "label-studio.json"  # in the campaign's folder
TITLE = "Tailwise"
USER = "tailwise"  # of HTTP Basic; the password counts
SAMPLING = "Uncertainty sampling"  # the lowest score of a prediction comes first
ACTIONS = ("ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED")
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
LOCAL_HELP = (
    "Label Studio refuses servers on the same machine or in a private network unless it is started with "
    "ML_BLOCK_LOCAL_IP=false and SSRF_PROTECTION_ENABLED=false"
)
TIMEOUT = 120.0  # seconds; predictions of a batch are made meanwhile
BATCH = 200  # tasks of one request
LONGEST = 400  # characters of a reason
_SECRET = re.compile(r"//[^/@\s]+@")  # in a URL

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[int, int]  # round and rank
PlaceOf: TypeAlias = Callable[[Json], Place | None]


# The labelling configuration: XML in, the control that asks for the class and its choices out.


@dataclass(frozen=True, slots=True)
class Control:
    """Where a prediction goes; by default named as `tailwise export` does."""

    from_name: str = CONTROL
    to_name: str = OBJECT
    choices: Mapping[str, str] = field(default_factory=dict)  # shown name → stored name, which differs with an alias

    def shown(self, choice: str) -> str:
        """The name that people see for a choice of a result: the inverse of `choices`.

        >>> Control(choices={"owl": "o", "gull": "gull"}).shown("o")
        'owl'
        """
        return next((name for name, kept in self.choices.items() if kept == choice), choice)


def read_control(config: str | None) -> Control:
    """The first control with choices.

    >>> read_control('<View><Choices name="kind" toName="img"><Choice value="owl" alias="o"/></Choices></View>')
    Control(from_name='kind', to_name='img', choices={'owl': 'o'})
    """
    if not config:
        return Control()
    try:
        root = xml_of(config.encode("utf-8"), "the labelling configuration")
    except BadFile as error:
        raise BadInput(str(error)) from error
    tag = next(root.iter("Choices"), None)
    if tag is None:
        return Control()
    values = {name: one.get("alias") or name for one in tag.iter("Choice") if (name := one.get("value"))}
    return Control(tag.get("name", CONTROL), tag.get("toName", OBJECT), values)


def config_differences(config: str, classes: Sequence[str]) -> list[str]:
    """What a labelling configuration lacks or has too much, compared with the classes; empty where it fits.

    >>> config_differences('<View><Choices name="a" toName="b"><Choice value="Owl"/></Choices></View>', ["owl", "gull"])
    ["it has no choice for the class 'gull'"]
    """
    choices = read_control(config).choices
    if not choices:
        return ["it has no <Choices> with a <Choice> for each class"]
    offered = {name.casefold() for pair in choices.items() for name in pair}
    known = {name.casefold() for name in classes}
    lacking = [f"it has no choice for the class {name!r}" for name in classes if name.casefold() not in offered]
    extra = [
        f"its choice {shown!r} is not a class of the campaign"
        for shown, kept in choices.items()
        if not {shown.casefold(), kept.casefold()} & known and not kept.startswith(OTHER)
    ]
    return [*lacking, *extra]


# The connection as the campaign keeps it. It holds no secret.


@dataclass(frozen=True, slots=True)
class Connection:
    """Which project of which Label Studio a campaign is connected with, and who its accounts are."""

    url: str
    project: int
    people: Mapping[str, str] = field(default_factory=dict)  # "user 1" or an e-mail address → annotator

    @classmethod
    def read(cls, folder: Path) -> Connection | None:
        """The connection of a campaign; None before `tailwise connect`."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            kept = json.loads(read_regular(path))
            people = {str(key): str(name) for key, name in dict(kept["people"]).items()}
            return cls(str(kept["url"]), int(kept["project"]), people)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadFile(f"cannot read {path}: {error}; delete it, and run `tailwise connect` again") from error

    def write(self, folder: Path) -> None:
        """Keep it in the campaign's folder."""
        write_whole(folder / FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())


def read_annotator_map(text: str) -> dict[str, str]:
    """Accounts with the annotators they are: "1=anna,2=ben", or a file with a pair per line or a JSON object.

    >>> read_annotator_map("1=anna, ben@example.org=ben")
    {'1': 'anna', 'ben@example.org': 'ben', 'user 1': 'anna'}
    """
    content = text
    if "=" not in text or Path(text).is_file():
        try:
            content = read_regular(text).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the annotator map {text!r} is neither a file nor pairs such as 1=anna,2=ben") from error
    try:
        given = json.loads(content) if content.lstrip().startswith("{") else _pairs(content)
    except ValueError as error:
        raise BadInput(f"the annotator map {text!r} cannot be read: {error}; write pairs such as 1=anna") from error
    found = {str(account).strip(): str(name).strip() for account, name in given.items()}
    # Label Studio writes the number of an account; JSON exports are read as "user 1".
    numbered = {f"user {account}": name for account, name in found.items() if account.isdigit()}
    return found | numbered


def _pairs(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in re.split(r"[,\n]", text) if part.strip()]
    bad = next(("".join(part) for part in parts if not part[0].strip() or not part[2].strip()), None)
    if bad is not None:
        raise ValueError(f"{bad.strip()!r} is not a pair")
    return {account: name for account, _, name in parts}


# The API.


class Studio:
    """A Label Studio server; its API token is sent, never shown."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(
                f"{_without_secret(url)!r} is not the address of a Label Studio, such as http://localhost:8080"
            )
        if not key.strip():
            raise BadInput(f"no API token; give it with --api-key or in the environment variable {KEY_VARIABLE}")
        self.url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._key = key.strip()
        self._access = ""

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - whatever JSON has
        """What is at a path."""
        return self._call("GET", f"{path}?{urlencode(query)}" if query else path)

    def send(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401
        """Create, change or delete something."""
        return self._call(method, path, body)

    def tasks(self, project: int) -> Iterator[Json]:
        """All tasks of a project, in the order of their ids."""
        page, seen = 1, 0
        while True:
            found = self.get("/api/tasks/", project=project, page=page, page_size=BATCH, fields="all")
            rows = found["tasks"] if isinstance(found, dict) else found
            yield from rows
            page, seen = page + 1, seen + len(rows)
            if not rows or (isinstance(found, dict) and seen >= found.get("total", 0)):
                return

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        if self._key.count(".") != 2:
            return self._fetch(method, path, body, f"Token {self._key}")
        if self._access:
            with suppress(TokenRefused):  # a personal access token gives access for some minutes at a time
                return self._fetch(method, path, body, f"Bearer {self._access}")
        self._access = self._fetch("POST", "/api/token/refresh/", {"refresh": self._key})["access"]
        return self._fetch(method, path, body, f"Bearer {self._access}")

    def _fetch(self, method: str, path: str, body: object, authorization: str = "") -> Any:  # noqa: ANN401
        try:
            return fetch(f"{self.url}{path}", method, body, {"Authorization": authorization} if authorization else {})
        except HTTPError as error:
            reason = _reason(error)
            if error.code == 401:
                raise TokenRefused(
                    f"Label Studio at {self.url} refused the API token: {reason}; copy one from Account & Settings → "
                    "Personal Access Token (legacy tokens are off unless the organization allows them)"
                ) from None
            raise StudioError(f"Label Studio refused {method} {path.partition('?')[0]}: {reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise BadInput(
                f"cannot reach Label Studio at {self.url}: {_without_secret(str(error))}; is it running?"
            ) from None


class StudioError(BadInput):
    """Label Studio refused a request."""


class TokenRefused(BadInput):
    """Label Studio refused the API token."""


def fetch(url: str, method: str = "GET", body: object = None, headers: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
    """The JSON of a response; proxies are not asked for addresses of this machine."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    opener = build_opener(ProxyHandler({})) if urlsplit(url).hostname in LOCAL else build_opener()
    with opener.open(request, timeout=TIMEOUT) as response:
        content = response.read()
    return json.loads(content) if content else None


def _reason(error: HTTPError) -> str:
    """What Label Studio says, without the token of a URL in it."""
    text = error.read().decode(errors="replace")
    try:
        found = json.loads(text)
        details = [found.get("validation_errors") or found.get("detail") or found] if isinstance(found, dict) else found
        text = "; ".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in details)
    except ValueError:
        text = ""
    return _without_secret(f"{error.code} {text or error.reason}")[:LONGEST]


def _without_secret(text: str) -> str:
    """A text without user names and passwords in URLs.

    >>> _without_secret("cannot open http://tailwise:abc@lab:8765/health")
    'cannot open http://lab:8765/health'
    """
    return _SECRET.sub("//", text)


# Connecting.


@dataclass(frozen=True, slots=True)
class Connected:
    """What was set up."""

    connection: Connection
    title: str  # of the project
    backend: int  # id of the ML backend
    webhook: int
    config_written: bool
    tasks: int
    in_round: int  # tasks whose image the open round asks for
    model_version: str  # of the predictions that are shown


@dataclass(frozen=True, slots=True)
class Server:
    """Where the campaign is served with `tailwise label --ml-backend`, as Label Studio reaches it."""

    url: str
    token: str

    def check(self) -> None:
        """An error where nobody, or another campaign, answers there."""
        start = f"start `tailwise label DIR --ml-backend`, or name its address with --server (asked: {self.url})"
        try:
            health = fetch(f"{self.url}/health")
            if not isinstance(health, dict) or health.get("model_class") != TITLE:
                raise BadInput(f"{self.url} is not a Tailwise server; {start}")
            fetch(f"{self.url}/api/state", headers={"X-Tailwise-Token": self.token})
        except HTTPError as error:
            if error.code == 401:
                raise BadInput(f"{self.url} serves another campaign: it refused this one's token; {start}") from None
            raise BadInput(f"{self.url} is not an ML backend (status {error.code}); {start}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise BadInput(f"nobody answers at {self.url} ({_without_secret(str(error))}); {start}") from None

    def with_token(self, path: str = "") -> str:
        """A URL that gets through: Label Studio sends the user and password of a URL."""
        parts = urlsplit(self.url + path)
        return urlunsplit(parts._replace(netloc=f"{USER}:{quote(self.token)}@{parts.netloc}"))


def connect(
    studio: Studio, number: int, server: Server, classes: Sequence[str], *, place: PlaceOf,
    annotators: Mapping[str, str] | None = None, write_config: bool = False,
) -> Connected:  # fmt: skip
    """Set up a project: check its configuration, add the webhook and the ML backend, bring it the open round."""
    try:
        project = studio.get(f"/api/projects/{number}/")
    except StudioError as error:
        raise BadInput(f"{studio.url} has no project {number} that this API token can see ({error})") from None
    written = _fit_config(studio, project, classes, write=write_config)
    server.check()
    webhook = _add_webhook(studio, number, server)
    backend = _add_backend(studio, number, server)
    studio.send("PATCH", f"/api/projects/{number}/", {"show_collab_predictions": True, "sampling": SAMPLING})
    people = _people(studio.get("/api/users/"), annotators or {})
    tasks, in_round, version = bring_round(studio, number, place)
    return Connected(
        Connection(studio.url, number, people), project["title"], backend, webhook, written, tasks, in_round, version
    )


def _fit_config(studio: Studio, project: Json, classes: Sequence[str], *, write: bool) -> bool:
    """Whether the project's configuration was replaced; an empty one is, another only where asked."""
    config = project.get("label_config") or ""
    differences = config_differences(config, classes)
    if not differences:
        return False
    if not write and "<Choice" in config:
        raise BadInput(
            f"the labelling configuration of project {project['id']} does not fit the campaign: "
            f"{'; '.join(differences)}. Change it in Label Studio, change the classes with `tailwise classes`, or "
            "replace it with --write-config"
        )
    studio.send("PATCH", f"/api/projects/{project['id']}/", {"label_config": label_config(classes).decode()})
    return True


def _add_webhook(studio: Studio, project: int, server: Server) -> int:
    """Before the ML backend, which would add one that sends everything."""
    url = server.with_token("/webhook")
    wanted = {"url": url, "send_payload": True, "send_for_all_actions": False, "actions": ACTIONS, "is_active": True}
    same = [one for one in studio.get("/api/webhooks/", project=project) if _same_place(one["url"], url)]
    for old in same[1:]:
        studio.send("DELETE", f"/api/webhooks/{old['id']}/", None)
    try:
        if same:
            return int(studio.send("PATCH", f"/api/webhooks/{same[0]['id']}/", wanted)["id"])
        return int(studio.send("POST", "/api/webhooks/", wanted | {"project": project})["id"])
    except StudioError as error:
        raise BadInput(f"{error}. {LOCAL_HELP}") from None


def _add_backend(studio: Studio, project: int, server: Server) -> int:
    wanted = {"url": server.with_token(), "title": TITLE, "project": project, "is_interactive": False}
    same = [one for one in studio.get("/api/ml/", project=project) if _same_place(one["url"], wanted["url"])]
    try:
        if same:
            return int(studio.send("PATCH", f"/api/ml/{same[0]['id']}", wanted)["id"])
        return int(studio.send("POST", "/api/ml/", wanted)["id"])
    except StudioError as error:
        raise BadInput(f"{error}. {LOCAL_HELP}") from None


def _same_place(first: str, second: object) -> bool:
    return _without_secret(first).rstrip("/") == _without_secret(str(second)).rstrip("/")


def _people(users: Iterable[Json], annotators: Mapping[str, str]) -> dict[str, str]:
    """Annotators by what Label Studio calls a person in JSON, CSV and webhooks; by default the e-mail address.

    >>> _people([{"id": 1, "email": "a@x.org"}, {"id": 2, "email": "b@x.org"}], {"1": "anna", "user 1": "anna"})
    {'user 1': 'anna', 'a@x.org': 'anna', 'user 2': 'b@x.org', 'b@x.org': 'b@x.org'}
    """
    found: dict[str, str] = {}
    for user in users:
        number, email = str(user["id"]), str(user.get("email") or user.get("username") or f"user {user['id']}")
        name = annotators.get(number) or annotators.get(email) or email
        found |= {f"user {number}": name, email: name}
    return found


# The open round in Label Studio.


def bring_round(studio: Studio, project: int, place: PlaceOf) -> tuple[int, int, str]:
    """Write round and rank into the tasks, and fetch predictions whose scores put the round first.

    Returns the number of tasks, of those in the round, and the version of the model that predicts.
    """
    ids, in_round = [], 0
    for task in studio.tasks(project):
        ids.append(task["id"])
        found, data = place(task), dict(task["data"])
        rest = {key: value for key, value in data.items() if key not in ("round", "rank")}
        wanted = rest if found is None else {**rest, "round": found[0], "rank": found[1]}
        in_round += found is not None
        if wanted != data:
            studio.send("PATCH", f"/api/tasks/{task['id']}/", {"data": wanted})
    for start in range(0, len(ids), BATCH):
        chosen = {"selectedItems": {"all": False, "included": ids[start : start + BATCH]}, "project": project}
        studio.send("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", chosen)
    versions = [one["model_version"] for one in studio.get("/api/ml/", project=project) if one["title"] == TITLE]
    version = str(versions[-1] or "") if versions else ""
    if version and ids:
        studio.send("PATCH", f"/api/projects/{project}/", {"model_version": version})
    return len(ids), in_round, version
