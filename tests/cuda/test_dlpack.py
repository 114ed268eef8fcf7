"""DLPack capsules, against NumPy's."""

import gc
from typing import Any

import numpy as np
import pytest

from taskfuse.cuda import dlpack
from taskfuse.cuda.dlpack import export_capsule, import_capsule
from taskfuse.dtypes import DTYPES, DType, float32

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("versioned", [False, True])
def test_numpy_arrays(versioned: bool) -> None:
    options: dict[str, Any] = {"max_version": (1, 0)} if versioned else {}
    for x in (X, X[::2, ::-1], X[:, 3], X[1, 2, ...]):
        found = import_capsule(x.__dlpack__(**options))
        assert (found.pointer, found.dtype, found.shape, found.device_type) == (x.ctypes.data, float32, x.shape, 1)
        assert found.strides is None or found.strides == tuple(s // 4 for s in x.strides)


def test_a_read_only_array_says_so() -> None:
    x = X.copy()
    x.flags.writeable = False
    assert import_capsule(x.__dlpack__(max_version=(1, 0))).read_only


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_round_trip(dtype: DType, versioned: bool) -> None:
    found = import_capsule(export_capsule(X, 4096, dtype, (2, 3), (-3, 0), 1, versioned=versioned))
    assert (found.pointer, found.dtype, found.shape, found.strides, found.device_type, found.device) == (4096, dtype, (2, 3), (-3, 0), dlpack.CUDA, 1)
    assert not found.read_only


@pytest.mark.parametrize("versioned", [False, True])
def test_the_owner_lives_as_long_as_the_consumer(versioned: bool) -> None:
    class Owner:
        gone = False

        def __del__(self) -> None:
            Owner.gone = True

    def export() -> object:
        return export_capsule(Owner(), 4096, float32, (2,), (1,), 0, versioned=versioned)

    found = import_capsule(export())
    gc.collect()
    assert not Owner.gone
    del found
    gc.collect()
    assert Owner.gone
    Owner.gone = False
    capsule = export()
    del capsule  # that nobody took
    gc.collect()
    assert Owner.gone


def test_a_capsule_is_taken_once() -> None:
    capsule = X.__dlpack__()
    lease = import_capsule(capsule)
    with pytest.raises(ValueError, match="used_dltensor"):
        import_capsule(capsule)
    del lease


def test_dtypes_that_taskfuse_lacks() -> None:
    assert import_capsule(np.zeros(2, np.complex64).__dlpack__()).dtype is None
