"""Backbones of transformers: tiny models that are made from a config and saved to a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tailwise import Campaign  # noqa: E402 - after the skip
from tailwise.errors import BadFile, BadInput  # noqa: E402
from tailwise.learners import make_learner  # noqa: E402
from tailwise.learners.backbone import Backbone, extract_features, is_hugging_face  # noqa: E402

SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = SMALL | {"vocab_size": 8, "max_position_embeddings": 4, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
PIXELS = {"image_size": 16, "patch_size": 8}
SQUARE, SHORTEST = {"height": 16, "width": 16}, {"shortest_edge": 18}


def make_model(kind: str) -> tuple[Any, Any]:
    """A model with random weights, and its image processor."""
    t = transformers
    if kind == "dinov2":
        processor = t.BitImageProcessorPil(size=SHORTEST, crop_size=SQUARE)
        return t.Dinov2Model(t.Dinov2Config(**SMALL, **PIXELS)), processor
    if kind == "clip":
        config = t.CLIPConfig(vision_config=SMALL | PIXELS, text_config=TEXT, projection_dim=12)
        return t.CLIPModel(config), t.CLIPImageProcessorPil(size=SHORTEST, crop_size=SQUARE)
    if kind == "siglip":
        config = t.SiglipConfig(vision_config=SMALL | PIXELS, text_config=TEXT)
        return t.SiglipModel(config), t.SiglipImageProcessorPil(size=SQUARE)
    return t.ViTForImageClassification(t.ViTConfig(**SMALL, **PIXELS, num_labels=3)), t.ViTImageProcessorPil(
        size=SQUARE
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    transformers.utils.logging.disable_progress_bar()
    for kind in ("vit", "dinov2", "clip", "siglip"):
        torch.manual_seed(0)
        for part in make_model(kind):
            part.save_pretrained(root / kind)
    transformers.utils.logging.enable_progress_bar()
    return {kind: root / kind for kind in ("vit", "dinov2", "clip", "siglip")}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (7, 16, 16, 3)).astype(np.uint8)


def literal_features(kind: str, folder: Path, images: np.ndarray) -> np.ndarray:
    """As the documentation of transformers does it."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    ready = processor(list(images), return_tensors="pt", do_resize=False, do_center_crop=False)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        if kind in ("clip", "siglip"):
            return np.asarray(model.get_image_features(**ready).pooler_output)
        out = model(**ready)
    return np.asarray(out.pooler_output if kind == "dinov2" else out.last_hidden_state[:, 0])


@pytest.mark.parametrize("kind", ["vit", "dinov2", "clip", "siglip"])
def test_features_are_those_of_the_library_itself(kind: str, folders: dict[str, Path], images: np.ndarray) -> None:
    backbone = Backbone(str(folders[kind]))
    assert backbone.size == 16
    found = extract_features(images, backbone)
    np.testing.assert_allclose(found, literal_features(kind, folders[kind], images), atol=1e-5)
    assert found.shape == (7, 12 if kind == "clip" else 16)


def test_the_key_follows_the_content_and_not_the_place(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folders["dinov2"], copy)
    key = Backbone(str(folders["dinov2"])).key()
    assert Backbone(str(copy)).key() == key
    assert Backbone(str(folders["siglip"])).key() != key
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert Backbone(str(copy)).key() != key


def test_the_frozen_learner_takes_one_and_is_loaded_again(
    folders: dict[str, Path], images: np.ndarray, tmp_path: Path
) -> None:
    learner = make_learner("frozen", backbone=str(folders["clip"]), cache=str(tmp_path / "cache"))
    model = learner.fit(images, np.arange(7) % 2, classes=2, seed=0)
    model.save(tmp_path / "model")
    again = make_learner("frozen").load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(images), model.predict_proba(images))


def test_names_of_the_hub_and_folders_are_told_from_factories(folders: dict[str, Path]) -> None:
    assert is_hugging_face("google/siglip-base-patch16-224")
    assert is_hugging_face(str(folders["vit"]))
    assert not is_hugging_face("torch.nn:Flatten")
    assert not is_hugging_face("simple")
    with pytest.raises(BadInput, match="no backbone is called 'dinov2'; use 'efficientnet-lite0' or"):
        Backbone("dinov2")
    with pytest.raises(BadInput, match="has weights of its own"):
        Backbone(str(folders["vit"]), weights="x.pth")


def test_a_model_that_is_not_there_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BadFile, match="there is no folder 'nobody/nothing', and no model of this name could be had"):
        Backbone("nobody/nothing")


def test_a_folder_without_a_model_or_without_all_weights_is_rejected(
    folders: dict[str, Path], images: np.ndarray, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match="cannot load a Hugging Face vision model"):
        Backbone(str(tmp_path / "empty"))
    from safetensors.torch import load_file, save_file

    shutil.copytree(folders["dinov2"], tmp_path / "half")
    weights = load_file(tmp_path / "half/model.safetensors")
    del weights["layernorm.weight"]
    save_file(weights, tmp_path / "half/model.safetensors", {"format": "pt"})
    with pytest.raises(BadFile, match=r"lacks weights, such as layernorm\.weight"):
        extract_features(images, Backbone(str(tmp_path / "half")))


def test_a_campaign_uses_one_and_predict_knows_it(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.inference.storage import find_learner, open_learner

    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels = rng.integers(0, 120, (20, 24, 3)) + 120 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"photos/{number:02d}.png")
    monkeypatch.chdir(folders["dinov2"].parent)  # a name that means something here alone
    with Campaign.create(tmp_path / "birds", tmp_path / "photos", ["dark", "light"], backbone="dinov2") as campaign:
        assert Path(campaign.settings.backbone) == folders["dinov2"]
        monkeypatch.chdir(tmp_path)
        for number in range(6):
            campaign.label(f"{number:02d}.png", ["dark", "light"][number % 2])
        proposal = campaign.next(3)
        assert proposal.backbone == str(folders["dinov2"])
        kept = [path.name for path in (campaign.ledger.files / "features").iterdir()]
        assert [name.rpartition("-")[0] for name in kept] == ["dinov2"]
    saved = find_learner(tmp_path / "birds")
    assert saved.size == 16
    pixels = np.asarray(Image.open(tmp_path / "photos/07.png").crop((2, 0, 22, 20)).resize((16, 16)))
    proba, _ = open_learner(saved).answer(pixels[None], embeddings=False)
    assert proba[0].argmax() == 1
