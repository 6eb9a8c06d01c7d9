"""`tailwise select FOLDER --engine ray` as it is typed: a cluster begins, answers as this machine would, and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np


def select(folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tailwise", "select", str(folder), "--budget", "40", "--balance", "0.5", "--json"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)  # one document and nothing else
    return found


def test_a_folder_of_shards_is_selected_from_on_a_cluster_as_it_is_here(tmp_path: Path) -> None:
    proba = np.random.default_rng(0).dirichlet(np.full(6, 0.3), size=30_000).astype(np.float16)
    for number, part in enumerate(np.array_split(proba, 3)):
        np.save(tmp_path / f"part-{number}.npy", part)
    here, there = select(tmp_path), select(tmp_path, "--engine", "ray", "--shards", "2")
    assert there["indices"] == here["indices"]
    assert (there["objective"], there["bound"]) == (here["objective"], here["bound"])
