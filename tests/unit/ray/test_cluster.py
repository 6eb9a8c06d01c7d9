"""A Ray session: on loopback, with a token, without a dashboard, and gone afterwards."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tailwise.errors import BadInput, MissingExtra
from tailwise.ray import cluster as folders
from tailwise.ray.cluster import AUTH_TOKEN, Cluster, address_of, connect

from .conftest import raylet_of

JOIN = """
import json, sys
from tailwise.errors import TailwiseError
from tailwise.ray.cluster import connect
try:
    with connect(sys.argv[1]) as cluster:
        import os, ray
        threads = ray.get(ray.remote(lambda: os.environ["OMP_NUM_THREADS"]).remote())
        print(json.dumps({"started": cluster.started, "cpus": cluster.cpus, "threads": threads}))
except TailwiseError as error:
    print(json.dumps({"kind": type(error).__name__, "why": str(error)}))
"""


def join(address: str, **variables: str) -> dict[str, object]:
    """What comes of joining from another process, which knows nothing but the variables given."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", JOIN, address], env=known | variables, capture_output=True, text=True, check=True
    )
    answer: dict[str, object] = json.loads(done.stdout)  # one line: what Ray has to say is not among it
    return answer


def listening(pid: int) -> set[str]:
    """Addresses on which a process accepts connections."""
    sockets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(readable(words[1].split(":")[0]))
    return found


def readable(number: str) -> str:
    """An address of /proc/net: words of four bytes, each the wrong way round."""
    packed = b"".join(bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8))
    address = ipaddress.ip_address(packed)
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(inner or address)


def session_processes(cluster: Cluster) -> list[int]:
    """All processes of a cluster: those whose command line, or whose parent's, names its folder."""
    assert cluster.nodes
    raylet = raylet_of(cluster)
    folder = re.search(rb"tailwise-ray-[^/]+", Path(f"/proc/{raylet}/cmdline").read_bytes())
    assert folder
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"PPid:\s+(\d+)", (process / "status").read_text())[1])  # type: ignore[index]
            if folder[0] in (process / "cmdline").read_bytes() or parent == raylet:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_cluster_that_is_started_has_the_cores_that_were_asked_for(cluster: Cluster) -> None:
    assert cluster.started
    assert [node.cpus for node in cluster.nodes] == [2.0]
    assert cluster.cpus == 2


def test_it_listens_on_loopback_alone(cluster: Cluster) -> None:
    heard = {pid: listening(pid) for pid in session_processes(cluster)}
    assert len(heard) >= 3  # at least the server of the state, the raylet and a worker
    addresses = set().union(*heard.values())
    assert addresses
    assert {address for address in addresses if not ipaddress.ip_address(address).is_loopback} == set()


def test_there_is_no_dashboard(cluster: Cluster) -> None:
    import ray

    assert not ray._private.worker._global_node.webui_url
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 8265)) != 0
    assert cluster.started


def test_nobody_joins_without_the_token_and_whoever_has_it_does_and_leaves_it_running(cluster: Cluster) -> None:
    for wrong in ({}, {AUTH_TOKEN: "0" * 64}):
        refused = join(cluster.address, **wrong)
        assert refused["kind"] == "BadInput"
        assert f"it requires a token; put it into {AUTH_TOKEN}" in str(refused["why"])
    joined = join(cluster.address, **{AUTH_TOKEN: os.environ[AUTH_TOKEN]})
    assert joined == {"started": False, "cpus": 2, "threads": "1"}
    assert cluster.cpus == 2


@pytest.mark.skipif(os.name == "nt", reason="folders have no modes")
def test_no_other_user_can_reach_the_folder_of_a_session(cluster: Cluster) -> None:
    import ray

    assert cluster.started
    inner = Path(ray._private.worker._global_node.get_session_dir_path()).parent
    assert inner.parent.name.startswith(folders.PREFIX)
    assert inner.parent.stat().st_mode & 0o777 == 0o700
    assert any(path.is_socket() for path in inner.rglob("*"))  # it is the one that Ray uses


@pytest.mark.long
def test_a_session_starts_where_the_folder_for_temporary_files_has_a_long_name() -> None:
    """Its sockets need a short one."""
    code = "from tailwise.ray.cluster import connect\nwith connect('ray', cpus=1) as cluster: print(cluster.cpus)"
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    for length in (folders.LONGEST, 40):
        place = Path("/tmp") / f"{os.getpid():07d}".ljust(length - len("/tmp/"), "x")
        place.mkdir()
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], env=known | {"TMPDIR": str(place)}, capture_output=True, text=True
            )
        finally:
            place.rmdir()  # which says that it is empty
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_workers_have_one_thread_each(cluster: Cluster) -> None:
    import ray

    assert cluster.started
    assert ray.get(ray.remote(lambda: os.environ["OMP_NUM_THREADS"]).remote()) == "1"


def test_in_a_session_the_engine_ray_is_that_session(cluster: Cluster) -> None:
    for engine in ("ray", "ray=auto", cluster.address):
        with connect(engine) as same:
            assert (same.address, same.started) == (cluster.address, False)
    assert cluster.cpus == 2  # and it goes on
    with pytest.raises(BadInput, match=r"this process is in the Ray cluster .* before joining 10.0.0.1:6379"):
        connect("ray=10.0.0.1:6379").__enter__()


ONCE = """
import json, os, signal, tempfile
from pathlib import Path
from tailwise.ray.cluster import connect
before, terminated = dict(os.environ), signal.getsignal(signal.SIGTERM)
with connect("ray", cpus=1) as cluster:
    here = sorted(path.name for path in Path(tempfile.gettempdir()).glob("tailwise-ray-*"))
    token = os.environ["RAY_AUTH_TOKEN"]
after = {name: value for name, value in os.environ.items() if name != "RAY_CLIENT_MODE"}
print(json.dumps({
    "folders": here, "left": [path.name for path in Path(tempfile.gettempdir()).glob("tailwise-ray-*")],
    "same": after == before, "signal": signal.getsignal(signal.SIGTERM) == terminated, "token": len(token),
}))
"""


def test_a_session_leaves_nothing_behind_and_prints_nothing(tmp_path: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    short = Path("/tmp") / f"tw{os.getpid()}"  # sockets have short names
    short.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-c", ONCE], env=known | {"TMPDIR": str(short), "HOME": str(tmp_path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answer = json.loads(done.stdout)
        assert len(answer["folders"]) == 1
        assert (answer["left"], answer["same"], answer["signal"], answer["token"]) == ([], True, True, 64)
        assert done.stderr == ""
        assert not (tmp_path / ".ray").exists()  # no token in the user's home
    finally:
        short.rmdir()  # which says that it is empty


@pytest.mark.parametrize(
    "engine", ["ray=", "rai", "ray=host", "ray=host:0", "host:70000", "http://host:1", ":6379", ""]
)
def test_an_engine_that_is_none_names_those_that_are(engine: str) -> None:
    with pytest.raises(BadInput, match=r"the engine is .*; it must be 'ray' \(starts Ray on this machine\)"):
        address_of(engine)


def test_the_address_of_an_engine() -> None:
    assert [address_of(engine) for engine in ("ray=auto", "auto", "ray=ray://head:10001", "[::1]:6379")] == [
        "auto", "auto", "ray://head:10001", "[::1]:6379",
    ]  # fmt: skip


def test_a_cluster_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        answer = join(f"ray=127.0.0.1:{taken.getsockname()[1]}")
    assert answer["kind"] == "BadInput"
    assert "start one with: ray start --head" in str(answer["why"])


WITHOUT = """
import sys
sys.modules["ray"] = None
from tailwise.ray.cluster import connect
connect("ray").__enter__()
"""
HOLD = """
import sys, time
from pathlib import Path
from tailwise.ray import cluster as folders
folders._home = lambda: Path(sys.argv[1])
held = folders.session_folder()
print(held.__enter__(), flush=True)
time.sleep(60)
"""


def test_without_ray_the_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{MissingExtra.__name__}: engine 'ray' needs ray, which is not installed" in done.stderr
    assert "pip install 'tailwise[ray]'" in done.stderr


@pytest.mark.parametrize(("cpus", "store"), [(0, 200 << 20), (1, 1 << 20)])
def test_a_cluster_that_is_too_small_is_refused(cpus: int, store: int) -> None:
    code = f"from tailwise.ray.cluster import connect; connect('ray', cpus={cpus}, object_store={store}).__enter__()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BadInput: a cluster needs 1 core and 83,886,080 bytes of shared memory" in done.stderr.replace("\n", " ")


def test_folders_of_killed_sessions_are_removed_and_those_of_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_home", lambda: tmp_path)
    killed, living = (
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    with killed, living:
        try:
            gone, stays = (Path(one.stdout.readline().strip()) for one in (killed, living))  # type: ignore[union-attr]
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            gone, stays = gone.parent, stays.parent  # what is held is the outer folder, which nobody else may enter
            for folder in (gone, stays):
                assert folder.stat().st_mode & 0o777 == 0o700
                os.utime(folder, (0, 0))
            foreign = tmp_path / "tailwise-other"
            foreign.mkdir()
            with folders.session_folder() as mine:
                assert {path.name for path in tmp_path.iterdir()} == {mine.parent.name, stays.name, foreign.name}
            assert not mine.parent.exists()
        finally:
            living.kill()
