"""NumPy arrays that models fill and read."""

from __future__ import annotations

from typing import Any

from .._native import structs
from ..arrays import adopt, native_tensor
from ..errors import InvalidArgument, Unsupported
from ..framework import CPU


def numpy_for(method: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise Unsupported(
            f"{method}: expected NumPy, whose arrays it returns, got none; pip install numpy"
        ) from None
    return numpy


def float32_array(shape: tuple[int, ...], method: str) -> tuple[Any, structs.Tensor]:
    """A new array and the library's view of it."""
    numpy = numpy_for(method)
    array = numpy.empty(shape, numpy.float32)
    return array, view_of(array, method)


def view_of(array: Any, name: str) -> structs.Tensor:
    framework, adopted = adopt(array, name)
    view = framework.view(adopted, name)
    if view.device != CPU:
        raise InvalidArgument(
            f"{name}: expected an array in host memory, got one on {view.device}; pass {name}.cpu()"
        )
    return native_tensor(view)
