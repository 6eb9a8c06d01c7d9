"""Property tests draw the same examples every time and are not timed, so that `make test` says of one tree one thing.

`pytest --hypothesis-profile explore` draws new examples. No test measures how busy the machine is: limits of time are a
minute, and what is promised in milliseconds is measured by `benchmarks/speed`.

Folders of tests are in memory where a system has room for it: ledgers and files are synchronised to a disk thousands of
times, which is most of the wait of a test and none of its evidence.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("same")

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # a folder that Linux keeps in memory, and the bytes that tests may need


def pytest_configure() -> None:
    """Have `tmp_path` be in memory, unless somebody has said where it is; what passes is removed at once."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist need not be installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:  # noqa: ANN401 - xdist has no types for it
    """Tests of one file run in one process, in their order; all of Ray's too, so that they share one cluster."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/unit/ray" if nodeid.startswith("tests/unit/ray/") else nodeid.split("::", 1)[0]

    return ByFile(config, log)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted, also if a background shell started the tests: it lets its processes ignore SIGINT.

    A child inherits what is ignored, but not what a handler of its parent does.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a quarter of the dots, with a font that is embedded sooner: for tests of what is around them."""
    from tailwise.report.figures import STYLE

    monkeypatch.setitem(STYLE, "savefig.dpi", 50)
    monkeypatch.setitem(STYLE, "pdf.fonttype", 3)


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """λ sweeps of three steps instead of thirty in this process: for tests of what is around them."""
    from tailwise.strategies import select

    whole = select.paper_grid
    monkeypatch.setattr(select, "paper_grid", lambda scale: whole(scale)[::10])


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP with random weights and a tokenizer of five words."""
    torch = pytest.importorskip("torch")
    t = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("models") / "clip"
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    text = small | {
        "vocab_size": 8,
        "max_position_embeddings": 6,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    config = t.CLIPConfig(
        vision_config=small | {"image_size": 16, "patch_size": 8}, text_config=text, projection_dim=12
    )
    torch.manual_seed(0)
    t.utils.logging.disable_progress_bar()
    t.CLIPModel(config).save_pretrained(folder)
    t.utils.logging.enable_progress_bar()
    size = {"height": 16, "width": 16}
    t.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=size).save_pretrained(folder)
    words = {"<s>": 0, "</s>": 1, "a": 2, "photo": 3, "of": 4, "cat": 5, "dog": 6, "?": 7}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    t.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="?"
    ).save_pretrained(folder)
    return folder
