"""The arrays of placement: rows of the columns, and a number for each of them."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
"""Places in the columns, one per node."""

Ints = NDArray[np.int64]
"""Per row: ids of statuses (filters), or scores."""
