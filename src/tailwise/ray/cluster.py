"""A Ray session: an engine's name in, a cluster to work on out; what was started is stopped, what was joined is left.

A cluster that is started here listens on loopback alone, has no dashboard, and requires a token that only we know. Its
sockets and logs are in a private folder, which is removed afterwards. Ray lets every user write into the folder that it
is given, so that folder is inside another one, which only this user can enter. The outer one is locked while its
process lives; the next process removes what a killed one left behind.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput, MissingExtra
from ..processes import ONE_THREAD, cores, environment, lock_file, unlock_file

PREFIX = "tailwise-ray-"
LOCK_FILE = "lock"
INNER = "s"
LONGEST = 15  # bytes: the path of a socket may have 103 on macOS; our names take 24 of them, those of Ray up to 64
LEFT_ALONE = 60.0  # seconds: a younger folder may be about to be locked


@contextmanager
def session_folder() -> Iterator[Path]:
    """A new folder that only this user can reach."""
    home = _home()
    remove_left_behind(home)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    descriptor = lock_file(folder / LOCK_FILE)
    try:
        inner = folder / INNER
        inner.mkdir()
        yield inner
    finally:
        if descriptor is not None:  # nobody else could lock a folder that is this new
            unlock_file(descriptor)
        shutil.rmtree(folder, ignore_errors=True)  # a process that is still ending may write a last line of log


def remove_left_behind(home: Path) -> None:
    """Remove this user's folders whose process is gone."""
    for folder in home.glob(f"{PREFIX}*"):
        with suppress(OSError):  # of another user, gone meanwhile, or held
            facts = folder.lstat()
            mine = (
                not hasattr(os, "getuid") or facts.st_uid == os.getuid()
            )  # on Windows the temporary folder is the user's
            if mine and time.time() - facts.st_mtime > LEFT_ALONE and not folder.is_symlink():
                _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    descriptor = lock_file(folder / LOCK_FILE)
    if descriptor is not None:
        unlock_file(descriptor)  # Windows does not remove an open file; no process uses a folder again
        shutil.rmtree(folder, ignore_errors=True)


def _home() -> Path:
    """The usual place, if short enough for the names of sockets, which Ray does not use on Windows."""
    usual = Path(tempfile.gettempdir())
    return usual if os.name == "nt" or len(os.fsencode(usual)) <= LONGEST else Path("/tmp")


ENGINES = "'ray' (starts Ray on this machine), 'ray=HOST:PORT', 'ray=ray://HOST:PORT' or 'ray=auto'"
OBJECT_STORE = 256 << 20  # bytes: what travels between workers is small; everything large lies in files
LEAST_STORE = 80 << 20  # bytes; Ray refuses less
SILENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# Ray's own switch, named for the systems on which it is the default: without clusters, a node's address is loopback.
SEVERAL_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
PATIENCE = 10.0  # seconds for a cluster's address to answer
TRIES = 3  # one per second, of joining an address that answers


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster, as Ray sees it."""

    id: str
    cpus: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray session that this process is in."""

    address: str
    started: bool  # by us; False where it was joined, and goes on without us

    @property
    def nodes(self) -> list[Node]:
        """Those that are alive now, by id."""
        found = [node for node in ray_module().nodes() if node["Alive"]]
        return sorted((Node(node["NodeID"], node["Resources"].get("CPU", 0.0)) for node in found), key=lambda n: n.id)

    @property
    def workers(self) -> list[Node]:
        """Those that have a core to give, which a cluster's head often has not; if none has, all."""
        nodes = self.nodes
        return [node for node in nodes if node.cpus >= 1] or nodes

    @property
    def cpus(self) -> int:
        """Cores of all machines that are alive."""
        return int(sum(node.cpus for node in self.nodes))


def address_of(engine: str) -> str | None:
    """Where the cluster of an engine is; None for one that is to be started.

    >>> address_of("ray"), address_of("ray=10.0.0.5:6379"), address_of("ray://head:10001")
    (None, '10.0.0.5:6379', 'ray://head:10001')
    """
    name, _, address = engine.partition("=")
    if engine == "ray":
        return None
    wanted = address if name == "ray" else engine
    if wanted == "auto" or _port_of(wanted) is not None:
        return wanted
    raise BadInput(f"the engine is {engine!r}; it must be {ENGINES}")


@contextmanager
def connect(engine: str, *, cpus: int | None = None, object_store: int = OBJECT_STORE) -> Iterator[Cluster]:
    """Be in a Ray session: start one ("ray"), or join one ("ray=host:port", "ray=ray://host:port", "ray=auto").

    Where this process is in a session already, "ray" is that one. `cpus` (default: all cores) and `object_store`
    (bytes of shared memory) are those of a cluster that is started; workers compute with one thread each.
    """
    address = address_of(engine)
    ray = ray_module()
    if ray.is_initialized():
        yield _present(ray, address)
        return
    with ExitStack() as session:
        session.enter_context(_as_it_was_signalled())
        session.enter_context(_set(ray._private.worker, _worker_logs_enabled=False))  # they would go to our stdout
        if address is None:
            yield session.enter_context(_started(ray, cores() if cpus is None else cpus, object_store))
        else:
            yield session.enter_context(_joined(ray, address))


def ray_module() -> Any:  # noqa: ANN401 - a module that is not installed everywhere
    """Ray, or what to install."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtra.named("engine 'ray'", "ray", "ray") from error


def _present(ray: Any, address: str | None) -> Cluster:  # noqa: ANN401 - the module
    here = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", here):
        raise BadInput(
            f"this process is in the Ray cluster {here} already; call ray.shutdown() before joining {address}"
        )
    return Cluster(here, started=False)


@contextmanager
def _started(ray: Any, cpus: int, object_store: int) -> Iterator[Cluster]:  # noqa: ANN401 - the module
    if cpus < 1 or object_store < LEAST_STORE:
        raise BadInput(
            f"a cluster needs 1 core and {LEAST_STORE:,} bytes of shared memory, not {cpus} and {object_store:,}"
        )
    token = {AUTH_MODE: "token", AUTH_TOKEN: secrets.token_hex(32)}
    with session_folder() as folder, _ray_environment({**ONE_THREAD, **SILENT, **token}), _loopback(ray):
        try:
            ray.init(
                "local", num_cpus=cpus, include_dashboard=False, object_store_memory=object_store,
                _node_ip_address="127.0.0.1", _temp_dir=str(folder), log_to_driver=False, logging_level=logging.ERROR,
            )  # fmt: skip
            _check_loopback(ray)
            yield Cluster(ray.get_runtime_context().gcs_address, started=True)
        finally:
            ray.shutdown()


@contextmanager
def _joined(ray: Any, address: str) -> Iterator[Cluster]:  # noqa: ANN401 - the module
    with ExitStack() as ways:
        ways.enter_context(_ray_environment({**SILENT, **_mode_for_users_token()}))
        ways.enter_context(_set(ray._private.ray_constants, NUM_REDIS_GET_RETRIES=TRIES))
        if _leads_through_loopback(ray, address):
            ways.enter_context(_loopback(ray))
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": ONE_THREAD})
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise BadInput(f"cannot join the Ray cluster at {address}: {_advice(error)}") from error
        try:
            yield Cluster(ray.get_runtime_context().gcs_address, started=False)
        finally:
            ray.shutdown()  # of a cluster that was joined, this leaves all but our own connection as it is


def _advice(error: BaseException) -> str:
    """The reason, with what to do about it."""
    reason = str(error.__cause__ or error) or type(error).__name__
    if "InvalidAuthToken" in reason or "AuthenticationError" in reason:
        return f"it requires a token; put it into {AUTH_TOKEN}, or the name of a file with it into {AUTH_TOKEN_PATH}"
    return f"{reason.splitlines()[0]} Is it running, and of the same release of Ray?"


def _check_loopback(ray: Any) -> None:  # noqa: ANN401 - the module
    """Another release of Ray may take an address as it likes: rather no cluster than an open one."""
    for address in (node["NodeManagerAddress"] for node in ray.nodes()):
        if not _is_loopback(address):
            raise BadInput(
                f"this release of Ray ({ray.__version__}) listens on {address}, not on loopback alone; "
                "install the one that Tailwise is tested with: pip install 'tailwise[ray]'"
            )


def _mode_for_users_token() -> dict[str, str]:
    """A token that the user has is shown, unless the user has said whether to."""
    if AUTH_MODE in os.environ:
        return {}
    named = os.environ.get(AUTH_TOKEN) or os.environ.get(AUTH_TOKEN_PATH)
    return {AUTH_MODE: "token"} if named or (Path.home() / ".ray" / "auth_token").exists() else {}


def _leads_through_loopback(ray: Any, address: str) -> bool:  # noqa: ANN401 - the module
    """Whether nothing but loopback leads to an address; one that does not answer raises at once."""
    port = _port_of(address)
    if port is None or "://" in address:
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        raise BadInput(
            f"cannot join the Ray cluster at {address}: {error.strerror or error}; start one with: ray start --head"
        ) from error
    if not _is_loopback(host):
        return False
    with suppress(OSError), socket.create_connection((ray.util.get_node_ip_address(), port), timeout=PATIENCE):
        return False  # Ray would go this way even if asked for loopback's address
    return True


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port_of(address: str) -> int | None:
    """The port of "host:port" or "ray://host:port"; None where it is neither."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    good = bool(host) and "/" not in host and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    return int(port) if good else None


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:  # noqa: ANN401 - the module
    """Make loopback the address of this machine: for processes to come by the variable, here by what was read of it."""
    with environment({SEVERAL_MACHINES: "0"}), _set(ray._private.ray_constants, ENABLE_RAY_CLUSTER=False):
        yield


@contextmanager
def _set(module: Any, **values: object) -> Iterator[None]:  # noqa: ANN401 - a module of Ray
    """Names of a module of Ray, most of which it reads from the environment once, set for as long as it is needed."""
    before = {name: getattr(module, name) for name in values}
    vars(module).update(values)
    try:
        yield
    finally:
        vars(module).update(before)


@contextmanager
def _ray_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for Ray, which caches its mode and token: it is made to read them again, now and afterwards."""
    try:
        with environment(values):
            _read_token_again()
            yield
    finally:
        _read_token_again()


def _read_token_again() -> None:
    inner: Any = importlib.import_module("ray._raylet")
    inner.Config.initialize("")
    inner.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _as_it_was_signalled() -> Iterator[None]:
    """Ray takes SIGTERM for itself: give it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
