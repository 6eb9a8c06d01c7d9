"""Models on the disk: settings and tensors in, model.json and one safetensors file out, and back; never a pickle.

The tensors are named by a checksum and model.json, written last, names it: a crash leaves the old model or the new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile
from ..files import write_whole

FORMAT = 1
SETTINGS_FILE = "model.json"


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """What is saved of a model; settings are plain JSON values."""

    kind: str
    settings: dict[str, Any]
    tensors: dict[str, np.ndarray]


def save_model(folder: Path, stored: StoredModel) -> None:
    """Write into a folder, which is made if need be; a model that was there is replaced."""
    from safetensors.numpy import save

    content = save({name: np.array(tensor, order="C") for name, tensor in stored.tensors.items()})
    checksum = _checksum(content, stored.settings)
    page = {"format": FORMAT, "kind": stored.kind, "settings": stored.settings, "sha256": checksum}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {folder}: {error.strerror or error}") from error
    write_whole(_tensor_file(folder, checksum), content)
    write_whole(folder / SETTINGS_FILE, (json.dumps(page, indent=2, allow_nan=False) + "\n").encode())
    for other in folder.glob("tensors-*.safetensors"):
        if other != _tensor_file(folder, checksum):
            other.unlink(missing_ok=True)


def load_model(folder: Path, kind: str) -> StoredModel:
    """Read a model of this kind; settings and tensors are checked against their checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    page = _read_page(folder, kind)
    path = _tensor_file(folder, page["sha256"])
    content = _read(path)
    if _checksum(content, page["settings"]) != page["sha256"]:
        raise damaged(folder, "the checksum is not the one that was written")
    try:
        return StoredModel(kind, page["settings"], load(content))
    except SafetensorError as error:
        raise damaged(folder, f"{path.name} is no safetensors file ({error})") from error


def damaged(folder: Path, what: str) -> BadFile:
    """The error for a model whose parts do not fit together."""
    return BadFile(f"the model in {folder} is damaged: {what}; train it again")


def _checksum(content: bytes, settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\0" + content).hexdigest()


def _tensor_file(folder: Path, checksum: str) -> Path:
    return folder / f"tensors-{checksum[:16]}.safetensors"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error


def _read_page(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    content = _read(path)
    try:
        page = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is no JSON: {error}") from error
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise BadFile(f"{path} is not a model of format {FORMAT}, which is the one that this version reads")
    if page.get("kind") != kind:
        raise BadFile(f"{path} holds a {page.get('kind')!r} model, but a {kind!r} model was asked for")
    checksum = page.get("sha256")
    if not isinstance(checksum, str) or len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
        raise damaged(folder, f"{SETTINGS_FILE} names no checksum")
    if not isinstance(page.get("settings"), dict):
        raise damaged(folder, f"{SETTINGS_FILE} has no settings")
    return page
