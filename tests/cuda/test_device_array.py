"""Arrays on a GPU that belong to no framework."""

from __future__ import annotations

from taskfuse.cuda.dlpack import import_capsule
from tests.cuda.calls import COPY
from tests.cuda.fakes import FakeDriver, Interface, aligned
from tests.cuda.launched import Case


def test_device_arrays_are_arguments_too(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    (y,) = case.run((Interface(driver, aligned((3, 32), "float32"), stream=9),))
    (z,) = case.run((y,))
    assert (z.stream, driver.launches[-1].stream) == (9, 9)
    assert case.arguments()["x"] == y.pointer
    assert y.__cuda_array_interface__ == {
        "shape": (3, 32),
        "typestr": "<f4",
        "data": (y.pointer, False),
        "strides": (128, 4),
        "stream": 9,
        "version": 3,
    }
    driver.log.clear()
    found = import_capsule(y.__dlpack__(stream=4, max_version=(1, 0)))
    assert (found.pointer, found.shape, driver.log) == (y.pointer, (3, 32), [("order", 9, 4)])
    y.__dlpack__(stream=-1)
    assert driver.log == [("order", 9, 4)]
    assert y.__dlpack_device__() == (2, 0)
    assert repr(y) == "DeviceArray(float32[3, 32] on GPU 0)"
    assert y.numpy().shape == (3, 32)
