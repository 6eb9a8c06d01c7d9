"""A Ray cluster of several machines, each a raylet of its own on loopback, one of which dies while it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.long
PROGRAM = """
import contextlib
import json
import os
import signal
import numpy as np
import ray
import tailwise
from ray.cluster_utils import Cluster as Machines
from tailwise.ray.rows import RayBackend

proba = np.random.default_rng(0).dirichlet(np.geomspace(0.6, 0.05, 12), size=20_000).astype(np.float32)
here = tailwise.select(proba, 300, score="entropy", balance=0.8)
common = {"object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}
machines = Machines(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
workers = [machines.add_node(num_cpus=1, **common) for _ in range(2)]
call, homes, asked = RayBackend.call, [], 0


def call_and_lose_a_machine(backend, method, arguments):
    global asked
    asked += 1
    homes.append(sorted(home.id for home in backend._homes))
    if asked == 9:
        there = [actor for actor, home in zip(backend.actors, backend._homes) if home.id == workers[0].node_id]
        processes = ray.get([actor.process.remote() for actor in there])
        machines.remove_node(workers[0], allow_graceful=False)
        for process in processes:  # they would live on for some seconds, long enough for all calls on a fast machine
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    return call(backend, method, arguments)


RayBackend.call = call_and_lose_a_machine
there = tailwise.select(proba, 300, score="entropy", balance=0.8, engine=machines.address)
machines.shutdown()
print(json.dumps({
    "same": here.indices.tolist() == there.indices.tolist() and here.bound == there.bound,
    "before": homes[0], "after": homes[-1], "workers": sorted(worker.node_id for worker in workers),
}))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_each_machine_that_has_cores_holds_a_shard(told: dict[str, Any]) -> None:
    assert told["before"] == told["workers"]


def test_a_machine_that_dies_is_replaced_by_another_and_the_picks_are_the_same(told: dict[str, Any]) -> None:
    assert len(set(told["after"])) == 1
    assert set(told["after"]) < set(told["before"])
    assert told["same"]
