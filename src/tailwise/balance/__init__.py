"""What balance means: the target Ω of a batch, and measures of how balanced a set is."""

from .measure import l1_score
from .target import Target

__all__ = ["Target", "l1_score"]
