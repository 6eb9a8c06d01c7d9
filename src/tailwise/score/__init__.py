"""How informative is a sample? Pure functions: probabilities in, one number per sample out, larger = more wanted.

The registered scores need nothing but the softmax matrix; `bald` needs dropout passes and `labelledness` VAAL's nets.
"""

from .mc import bald
from .softmax import SCORES, entropy, least_confidence, margin

__all__ = ["SCORES", "bald", "entropy", "least_confidence", "margin"]
