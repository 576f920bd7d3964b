"""Arrays of any framework as what the C interface takes: address, type, extents, strides, device.

NumPy and torch are each used only where an array of theirs is seen; neither is needed for the
other. Any other array is taken by DLPack, through NumPy on the CPU and through torch on a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

from ._native import structs
from .errors import InvalidArgument, Unsupported
from .framework import CPU, Device, Framework, View
from .values import whole
from .numpy_arrays import NumPy
from .torch_arrays import Torch

_frameworks: dict[str, Any] = {}


def torch_framework() -> Torch | None:
    """torch's, where the program has imported torch."""
    found = _frameworks.get("torch")
    if found is None:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor"):  # absent, or just being imported
            return None
        found = _frameworks["torch"] = Torch(torch)
    return found


def torch_compiles() -> bool:
    """Whether torch.compile is tracing the caller; it can trace this."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "compiler") and torch.compiler.is_compiling()


def numpy_framework() -> NumPy | None:
    found = _frameworks.get("numpy")
    if found is None:
        numpy = sys.modules.get("numpy")
        if numpy is None or not hasattr(numpy, "ndarray"):
            return None
        found = _frameworks["numpy"] = NumPy(numpy)
    return found


def framework_of(array: Any) -> Framework | None:
    """The framework whose own arrays `array` is one of; None for others."""
    torch = torch_framework()
    if torch is not None and torch.is_one(array):
        return torch
    numpy = numpy_framework()
    if numpy is not None and numpy.is_one(array):
        return numpy
    return None


def import_torch(array: Any, argument: str) -> Torch:
    """torch's, which takes what is in GPU memory."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise Unsupported(
            f"{argument}: expected torch to be installed to take a {type(array).__name__} in GPU "
            "memory, got no torch; install torch"
        ) from None
    found = torch_framework()
    assert found is not None
    return found


_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST = 1, 2, 3


def adopt(array: Any, argument: str) -> tuple[Framework, Any]:
    """The framework of `array` and the array in it: the same, or one that shares its memory.

    Raises InvalidArgument for what is no array, Unsupported for memory that nothing here reads.
    """
    framework = framework_of(array)
    if framework is not None:
        return framework, array
    if not hasattr(array, "__dlpack__"):
        raise InvalidArgument(
            f"{argument}: expected a NumPy array, a torch tensor or an object with __dlpack__, got "
            f"{type(array).__name__}"
        )
    kind = int(array.__dlpack_device__()[0])
    if kind in (_DLPACK_CPU, _DLPACK_CUDA_HOST):
        import numpy

        wrapper = numpy_framework()
        assert wrapper is not None
        try:
            return wrapper, numpy.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as error:
            raise Unsupported(
                f"{argument}: NumPy cannot read this {type(array).__name__} by DLPack: {error}"
            ) from error
    if kind == _DLPACK_CUDA:
        torch = import_torch(array, argument)
        return torch, torch._torch.from_dlpack(array)
    raise Unsupported(
        f"{argument}: expected memory of the CPU or of an NVIDIA GPU, got DLPack device type {kind}"
    )


def hand_back(result: Any, like: Any) -> Any:
    """`result` in the library of `like`, which adopt() took by DLPack; shares memory."""
    kind = type(like)
    space = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
    if space is None:
        space = sys.modules.get(kind.__module__.partition(".")[0])
    convert = getattr(space, "from_dlpack", None)
    if convert is None:
        convert = getattr(getattr(space, "dlpack", None), "from_dlpack", None)
    if convert is None:
        raise Unsupported(
            f"out: {kind.__module__}.{kind.__name__} has no from_dlpack to take the result with; "
            "pass NumPy arrays or torch tensors"
        )
    torch = torch_framework()
    if torch is None or not torch.is_one(result) or not result.is_cuda:
        return convert(result)
    with torch.scope(result.device.index):  # whose stream the other library's is to wait for
        return convert(result)


def shape_of(array: Any) -> tuple[int, ...] | None:
    """None for what has no shape, as nested tensors have none."""
    try:
        return tuple(array.shape)
    except (AttributeError, RuntimeError, TypeError):
        return None


def dtype_code(dtype: Any) -> int:
    """The constant for "float32", numpy.float32, torch.float32 and so on."""
    if isinstance(dtype, str) and dtype in structs.DTYPE_CODES:
        return structs.DTYPE_CODES[dtype]
    torch = torch_framework()
    if torch is not None and isinstance(dtype, torch._torch.dtype) and dtype in torch._codes:
        return torch._codes[dtype]
    numpy = sys.modules.get("numpy")
    wrapper = numpy_framework()
    if numpy is not None and wrapper is not None:
        try:
            return wrapper.dtype_code(numpy.dtype(dtype), "dtype")
        except TypeError:
            pass
    raise InvalidArgument(
        'dtype: expected "float32", "float16", "bfloat16", or NumPy\'s or torch\'s object for one of '
        f"them, got {dtype!r}"
    )


def device_of(device: Any) -> Device:
    """A Device for "cpu", "cuda", "cuda:1", a torch.device or a Device."""
    if isinstance(device, Device):
        return device
    kind, _, ordinal = str(device).partition(":")
    if kind == "cpu":
        return CPU
    if kind == "cuda" and (not ordinal or ordinal.isdecimal()):
        if ordinal:
            return Device("cuda", whole(int(ordinal), "device", bits=32))
        torch = torch_framework()
        if torch is not None and torch._torch.cuda.is_available():
            return Device("cuda", torch._torch.cuda.current_device())
        return Device("cuda", 0)
    raise InvalidArgument(
        f'device: expected "cpu", "cuda", "cuda:N" or a torch.device of these, got {device!r}'
    )


def int64_array(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def native_tensor(view: View) -> structs.Tensor:
    """A stof_tensor of a view; it keeps its extents and strides alive."""
    shape, strides = int64_array(view.shape), int64_array(view.strides)
    return structs.Tensor(
        dtype=view.dtype, data=view.data, rank=len(view.shape), shape=shape, strides=strides
    )
