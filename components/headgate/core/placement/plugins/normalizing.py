"""Scores brought into the range that all plugins share."""

import numpy as np

from headgate.core.placement.arrays import Ints
from headgate.core.placement.framework.plugin import SCORE_MAX


def proportional(scores: Ints, *, reverse: bool) -> Ints:
    """In proportion to the highest one (DefaultNormalizeScore); reversed, the highest becomes 0."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, SCORE_MAX) if reverse else scores
    scaled = SCORE_MAX * scores // highest
    return SCORE_MAX - scaled if reverse else scaled
