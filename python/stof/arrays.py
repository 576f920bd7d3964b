"""Arrays of any framework as what the C interface takes: address, type, extents, strides, device.

NumPy and torch are each used only where an array of theirs is seen; neither is needed for the other.
Any other array is taken by DLPack, through NumPy on the CPU and through torch on a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import nullcontext
from typing import Any, Callable, NamedTuple, Sequence

from ._native import structs
from .errors import InvalidArgument, Unsupported

Signature = tuple[Any, ...]


class Device(NamedTuple):
    """Where memory is: the CPU, or the GPU of that number."""

    kind: str
    ordinal: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


CPU = Device("cpu")


class View(NamedTuple):
    """An array's memory. Strides count elements."""

    data: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: Device

    @property
    def dtype_name(self) -> str:
        return structs.DTYPE_NAMES[self.dtype]

    def last_stride_is_one(self) -> bool:
        return not self.shape or self.shape[-1] <= 1 or self.strides[-1] == 1


class Framework:
    """What a call needs of an array library. One object each, made when its arrays are first seen."""

    name: str

    #: Equal for arrays that differ only in where their memory is; cheap.
    signature: Callable[[Any], Signature]
    #: The address of the first element; cheap.
    pointer: Callable[[Any], int]

    def view(self, array: Any, argument: str) -> View:
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: int, like: Any) -> Any:
        """A new contiguous array on the device of `like`."""
        raise NotImplementedError

    def contiguous(self, array: Any) -> Any:
        """A row-major copy."""
        raise NotImplementedError

    def to_float32(self, array: Any) -> Any:
        """An exact copy of a 16-bit floating-point array."""
        raise NotImplementedError

    #: Whether something lowers the element types of operands, as torch.autocast does.
    is_autocast: Callable[[], bool] = staticmethod(lambda: False)

    def is_traced(self, q: Any, k: Any, v: Any) -> bool:
        """Whether somebody records operators in place of running them."""
        return False

    def check_no_grad(self, q: Any, k: Any, v: Any) -> None:
        """Raises where gradients would be asked for."""

    def check_no_grad_of(self, operands: dict[str, Any], tables: Sequence[Any]) -> None:
        """The same for operands other than q, k and v, by name, and score tables."""

    def is_one(self, array: Any) -> bool:
        raise NotImplementedError

    def is_writable(self, array: Any) -> bool:
        raise NotImplementedError


def _dtype_error(argument: str, got: object) -> InvalidArgument:
    return InvalidArgument(
        f"{argument}: expected a plain numeric or boolean element type in this machine's byte "
        f"order, got {got}; convert it first"
    )


_BYTE_OF = ctypes.c_char.from_buffer


class _NumPy(Framework):
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
        return (array.shape, array.strides, array.dtype)

    @staticmethod
    def pointer(array: Any) -> int:
        if array.flags.carray:  # contiguous and writable: four times as quick as the interface below
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
                raise _dtype_error(argument, dtype)
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


class _Torch(Framework):
    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._plain = (torch.Tensor, torch.nn.Parameter)
        names = {"bool": torch.bool, **{n: getattr(torch, n, None) for n in structs.DTYPE_NAMES}}
        self._codes = {t: structs.DTYPE_CODES[n] for n, t in names.items() if t is not None}
        self._dtypes = {code: dtype for dtype, code in self._codes.items()}
        self._is_grad_enabled = torch.is_grad_enabled
        #: Whether torch.autocast is on for some device.
        self.is_autocast: Callable[[], bool] = getattr(
            torch._C, "_is_any_autocast_enabled", lambda: True
        )
        self._num_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
        #: torch.jit.trace's, else None.
        self._jit_state = getattr(torch._C, "_get_tracing_state", lambda: None)
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        #: The current stream of a GPU, as a number.
        self.current_stream: Callable[[int], int] = raw or (
            lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream)
        )
        self.empty_like = torch.empty_like
        #: The GPU that is current on this thread.
        self.current_device: Callable[[], int] = getattr(
            torch._C, "_cuda_getDevice", torch.cuda.current_device
        )
        #: Whether the current stream is being recorded into a CUDA graph.
        self.is_capturing: Callable[[], bool] = getattr(
            torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
        )

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self._tensor)

    def is_writable(self, array: Any) -> bool:
        return True

    @staticmethod
    def signature(array: Any) -> Signature:
        return (array.shape, array.stride(), array.dtype, array.device, array.is_neg())

    @staticmethod
    def pointer(array: Any) -> int:
        return int(array.data_ptr())

    def has_gpu(self) -> bool:
        """Whether torch finds one: without, its calls raise errors of its own."""
        return bool(self._torch.cuda.is_available())

    def scope(self, ordinal: int) -> Any:
        """Makes a GPU torch's current device, and the one before it again on leaving. Without a GPU
        nothing, so that the library says what is missing."""
        if not self.has_gpu():
            return nullcontext()
        return self._torch.cuda.device(ordinal)

    def is_current(self, ordinal: int) -> bool:
        return bool(self.current_device() == ordinal)

    def is_traced(self, q: Any, k: Any, v: Any) -> bool:
        """True where there is no memory to read, or where somebody records operators: fake and meta
        tensors, modes and subclasses (torch_compiles() tells of torch.compile). They see the custom
        operators of stof.torch_ops."""
        plain, tensor = self._plain, self._tensor
        if type(k) not in plain and not isinstance(k, tensor):
            return False  # no tensor at all, which the checks of a call refuse
        if type(v) not in plain and not isinstance(v, tensor):
            return False
        return (
            q.is_meta
            or type(q) not in plain
            or type(k) not in plain
            or type(v) not in plain
            or self._num_modes() > 0
            or self._jit_state() is not None
        )

    def check_no_grad_of(self, operands: dict[str, Any], tables: Sequence[Any]) -> None:
        """The same for operands other than q, k and v."""
        if not self._is_grad_enabled():
            return
        named = [*operands.items(), *((f"score_tables[{i}]", x) for i, x in enumerate(tables))]
        for name, array in named:
            if array is not None and getattr(array, "requires_grad", False):
                raise Unsupported(
                    f"{name}: expected a tensor without gradients because stof has no backward pass, got "
                    "requires_grad=True while gradients are enabled; call it under torch.no_grad() or "
                    "torch.inference_mode(), or pass .detach()"
                )

    def check_no_grad(self, q: Any, k: Any, v: Any) -> None:
        if not self._is_grad_enabled():
            return
        names = [n for n, t in zip("qkv", (q, k, v)) if getattr(t, "requires_grad", False)]
        if names:
            raise Unsupported(
                f"{', '.join(names)}: expected tensors without gradients because stof has no "
                "backward pass, got requires_grad=True while gradients are enabled; call it under "
                "torch.no_grad() or torch.inference_mode(), or pass .detach()"
            )

    def dtype_code(self, dtype: Any, argument: str) -> int:
        code = self._codes.get(dtype)
        if code is None:
            raise _dtype_error(argument, dtype)
        return code

    def view(self, array: Any, argument: str) -> View:
        if array.layout is not self._torch.strided:
            raise InvalidArgument(
                f"{argument}: expected a dense (strided) tensor, got layout {array.layout}; pass "
                f"{argument}.to_dense()"
            )
        if array.is_neg():
            raise InvalidArgument(
                f"{argument}: expected a tensor whose memory holds its values, got a negated view; pass "
                f"{argument}.resolve_neg()"
            )
        device = array.device
        if device.type not in ("cpu", "cuda"):
            raise InvalidArgument(
                f"{argument}: expected a tensor on the CPU or a CUDA device, got {device}"
            )
        where = CPU if device.type == "cpu" else Device("cuda", device.index)
        code = self.dtype_code(array.dtype, argument)
        return View(array.data_ptr(), code, tuple(array.shape), array.stride(), where)

    def empty(self, shape: tuple[int, ...], dtype: int, like: Any) -> Any:
        return self._torch.empty(shape, dtype=self._dtypes[dtype], device=like.device)

    def contiguous(self, array: Any) -> Any:
        return array.clone(memory_format=self._torch.contiguous_format)

    def to_float32(self, array: Any) -> Any:
        return array.to(self._torch.float32)


_frameworks: dict[str, Any] = {}


def torch_framework() -> _Torch | None:
    """torch's, where the program has imported torch."""
    found = _frameworks.get("torch")
    if found is None:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor"):  # absent, or just being imported
            return None
        found = _frameworks["torch"] = _Torch(torch)
    return found


def torch_compiles() -> bool:
    """Whether torch.compile is tracing the caller; it can trace this."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "compiler") and torch.compiler.is_compiling()


def numpy_framework() -> _NumPy | None:
    found = _frameworks.get("numpy")
    if found is None:
        numpy = sys.modules.get("numpy")
        if numpy is None or not hasattr(numpy, "ndarray"):
            return None
        found = _frameworks["numpy"] = _NumPy(numpy)
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
        try:
            import torch
        except ImportError:
            raise Unsupported(
                f"{argument}: expected torch to be installed to take a {type(array).__name__} in GPU "
                "memory, got no torch; install torch"
            ) from None
        wrapper_torch = torch_framework()
        assert wrapper_torch is not None
        return wrapper_torch, torch.from_dlpack(array)
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
    return convert(result)


def dtype_code(dtype: Any) -> int:
    """The constant for "float32", numpy.float32, torch.float32 and so on."""
    if isinstance(dtype, str) and dtype in structs.DTYPE_CODES:
        return structs.DTYPE_CODES[dtype]
    torch = torch_framework()
    if torch is not None and dtype in torch._codes:
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
            return Device("cuda", int(ordinal))
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
