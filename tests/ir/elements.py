"""A few elements of each dtype."""

import numpy as np

from taskfuse.dtypes import DType, bool_

FLOATS = [0.0, 1.0, -2.5, 448.0, -3e38]
INTEGERS = [0, 1, 3, 100, 127]


def elements(dtype: DType) -> np.ndarray:
    return np.array([False, True] if dtype is bool_ else FLOATS if dtype.is_float else INTEGERS, dtype.compute.numpy)
