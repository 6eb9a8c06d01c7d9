"""Says what to install where torch is missing: a purpose in, nothing or `MissingExtra` out."""

from __future__ import annotations

from ..errors import MissingExtra


def need_torch(purpose: str) -> None:
    """Refuse in plain words where torch is not installed."""
    try:
        import torch  # noqa: F401 - the question is whether it is there
    except ImportError as error:
        raise MissingExtra.named(purpose, "torch", "torch") from error
