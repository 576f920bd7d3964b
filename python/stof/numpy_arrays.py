"""NumPy's arrays."""

from __future__ import annotations

import ctypes
from typing import Any

from ._native import structs
from .errors import InvalidArgument, Unsupported
from .framework import CPU, Framework, Signature, View, dtype_error


_BYTE_OF = ctypes.c_char.from_buffer


class NumPy(Framework):
    name = "NumPy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._codes: dict[Any, int] = {}
        self._dtypes: dict[int, Any] = {}

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self._numpy.ndarray)

    def is_writable(self, array: Any) -> bool:
        return bool(array.flags.writeable)

    @staticmethod
    def signature(array: Any) -> Signature:
        return (array.shape, array.strides, array.dtype, type(array))

    @staticmethod
    def pointer(array: Any) -> int:
        if (
            array.flags.carray
        ):  # contiguous and writable: four times as quick as the interface below
            try:
                return ctypes.addressof(_BYTE_OF(array))
            except (TypeError, ValueError, BufferError):
                pass  # no elements, or of a type that Python's buffers do not know
        return int(array.__array_interface__["data"][0])

    def dtype_code(self, dtype: Any, argument: str) -> int:
        code = self._codes.get(dtype)
        if code is None:
            name = dtype.name
            if not dtype.isnative or name not in structs.DTYPE_CODES or dtype.names is not None:
                raise dtype_error(argument, dtype)
            code = self._codes[dtype] = structs.DTYPE_CODES[name]
            self._dtypes[code] = dtype
        return code

    def dtype(self, code: int) -> Any:
        found = self._dtypes.get(code)
        if found is None:
            name = structs.DTYPE_NAMES[code]
            try:
                found = self._numpy.dtype(name)
            except TypeError:
                try:
                    import ml_dtypes  # gives NumPy bfloat16
                except ImportError:
                    raise Unsupported(
                        f"dtype: NumPy has no {name} by itself; install ml_dtypes, or use float32"
                    ) from None
                found = self._numpy.dtype(getattr(ml_dtypes, name))
            self._dtypes[code] = found
        return found

    def view(self, array: Any, argument: str) -> View:
        # numpy.ma is imported at each look, which takes longer than all else here, and a lock.
        plain = type(array) is self._numpy.ndarray
        if not plain and isinstance(array, self._numpy.ma.MaskedArray):
            raise InvalidArgument(
                f"{argument}: expected a plain NumPy array, got a MaskedArray, whose mask would be "
                f"ignored; pass {argument}.filled(...) or {argument}.data, and what must not be seen "
                "as mask="
            )
        size = array.dtype.itemsize
        code = self.dtype_code(array.dtype, argument)
        if any(stride % size for stride in array.strides):
            raise InvalidArgument(
                f"{argument}: expected strides that are multiples of the element size {size}, got "
                f"{array.strides} bytes; pass numpy.ascontiguousarray({argument})"
            )
        strides = tuple(stride // size for stride in array.strides)
        if 0 in array.shape:  # NumPy gives them strides of 0; nothing is read
            strides = (1,) * len(strides)
        return View(self.pointer(array), code, array.shape, strides, CPU)

    def empty(self, shape: tuple[int, ...], dtype: int, like: Any) -> Any:
        return self._numpy.empty(shape, self._dtypes.get(dtype) or self.dtype(dtype))

    def contiguous(self, array: Any) -> Any:
        return self._numpy.array(array, order="C", copy=True)

    def to_float32(self, array: Any) -> Any:
        return array.astype(self._numpy.float32)
