"""Without its library an adapter names the exact `pip install`, and no adapter loads a library before it is used."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

from tailwise.errors import MissingExtra


def test_scikit_activeml(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailwise.adapters import sklearn as adapter

    monkeypatch.setitem(sys.modules, "skactiveml", None)
    monkeypatch.delitem(adapter.__dict__, "BalancedSampling", raising=False)
    with pytest.raises(MissingExtra, match=r"run: pip install 'tailwise\[activeml\]'"):
        adapter.balanced_query(None, [[0.0]], [np.nan], clf=None, batch_size=1)
    with pytest.raises(MissingExtra, match=r"run: pip install 'tailwise\[activeml\]'"):
        _ = adapter.BalancedSampling


def test_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tailwise.adapters.torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r"needs torch, which is not installed; run: pip install 'tailwise\[torch\]'"
    ):
        importlib.import_module("tailwise.adapters.torch")


def test_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    pytest.importorskip("torch")
    from tailwise.adapters.huggingface import predict
    from tailwise.learners.backbone import Backbone

    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"needs transformers, .* run: pip install 'tailwise\[huggingface\]'"):
        predict("somebody/model", [])
    for name in ("somebody/other-model", str(tmp_path)):
        with pytest.raises(MissingExtra, match=r"needs transformers, .* run: pip install 'tailwise\[huggingface\]'"):
            Backbone(name)


PROBE = """
import json, sys
import tailwise.adapters.sklearn, tailwise.adapters.huggingface
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def test_adapters_load_their_library_only_when_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    heavy = {"datasets", "skactiveml", "sklearn", "torch", "transformers"}
    assert set(json.loads(done.stdout)) & heavy == set()
