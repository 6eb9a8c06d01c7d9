"""Numbers and choices in words: "1 image" or "2,000 images"; how the images of a round were chosen."""

from __future__ import annotations


def many(count: int, one: str, more: str = "") -> str:
    """A number of things; the verb may come along where it changes too.

    >>> many(1, "image"), many(2000, "image"), many(0, "class", "classes"), many(1, "file was", "files were")
    ('1 image', '2,000 images', '0 classes', '1 file was')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def how_chosen(strategy: str, status: str, balance: str, lam: float | None) -> str:
    """How the images of a round were chosen, in a few words.

    Boundary covers the pool while labels are few, and fills exact quotas then; its λ says little of either.

    >>> how_chosen("boundary", "greedy", "auto", 0.0), how_chosen("boundary", "optimal chunks", "auto", 0.4)
    ('boundary, covering the pool', 'boundary, exact class quotas')
    >>> how_chosen("boundary", "optimal chunks", "0.5", 0.5), how_chosen("typiclust", "greedy", "none", 0.0)
    ('boundary, λ = 0.5', 'typiclust')
    """
    if strategy == "boundary" and status == "greedy":
        return f"{strategy}, covering the pool"
    if status == "optimal chunks" and balance == "auto":
        return f"{strategy}, exact class quotas"
    return strategy if balance in ("none", "0") or lam is None else f"{strategy}, λ = {lam:.4g}"


def why_counts_differ(strategy: str, status: str) -> str:
    """Why the expected counts of a round may be far from its target; "" where they are chosen to be near it."""
    if strategy == "boundary" and status == "greedy":
        return "While labels are few, or the model is unsure of most images, images are chosen to cover the pool."
    if status == "optimal chunks":
        return "The target gives each class places for images at its border, and some of these are of other classes."
    return ""
