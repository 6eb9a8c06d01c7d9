from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadInput, UnknownName
from tailwise.pools import POOLS, LabelledImages, Pool, load_pool

NAMES = {"digits", "cifar10", "cifar100", "tiny-imagenet", "mnist", "fashion-mnist", "folder", "features"}

PROBE = """
import json, sys
from tailwise.pools.pool import POOLS
print(json.dumps([sorted(POOLS), sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_every_pool_is_registered_by_using_the_table_and_no_heavy_library_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    names, loaded = json.loads(done.stdout)
    assert set(names) == NAMES
    assert not {"PIL", "pyarrow", "sklearn", "scipy", "torch", "urllib.request", "http"} & set(loaded)


def test_paths_may_be_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x_train=np.eye(2), y_train=[0, 1], x_test=np.eye(2), y_test=[0, 1])
    assert len(load_pool("features", str(tmp_path / "x.npz")).train) == 2


def test_an_unknown_pool_or_setting_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cifar10'"):
        load_pool("cifar-10")
    with pytest.raises(BadInput, match="pool 'digits' has no setting 'size'; it takes no settings"):
        load_pool("digits", size=3)


def test_a_pool_of_ones_own_is_one_function() -> None:
    @POOLS.register("stripes of this test")
    def stripes(path: Path | None = None, *, number: int = 4) -> Pool:  # noqa: ARG001 - needs no files
        images = LabelledImages(np.eye(number, dtype=np.float32), np.arange(number), tuple("abcdefgh"[:number]))
        return Pool("stripes", images, images)

    try:
        assert len(load_pool("stripes of this test", number=3).train) == 3
    finally:
        del POOLS["stripes of this test"]
