"""torch's tensors."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any, Callable, Sequence

from ._native import structs
from .errors import InvalidArgument, Unsupported
from .framework import CPU, Device, Framework, Signature, View, dtype_error

NO_GRADIENTS = (
    "expected tensors without gradients because stof has no backward pass, got requires_grad=True while "
    "gradients are enabled; call it under torch.no_grad() or torch.inference_mode(), or pass .detach()"
)


def check_nested(array: Any, name: str) -> None:
    if array.is_nested:
        raise Unsupported(
            f"{name}: expected a tensor of one shape, got a nested tensor; pass packed rows "
            "[rows, heads, head_dim] to stof.varlen_attention with cu_seqlens (nested.values() and "
            "nested.offsets() of layout torch.jagged), or pad with nested.to_padded_tensor(0.0) and mask "
            "with masks.key_lengths()"
        )


def is_fake(array: Any) -> bool:
    """Whether it is one of a FakeTensorMode, which has shape and device but no memory."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and isinstance(array, fakes.FakeTensor)


class Torch(Framework):
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
        #: torch.func's innermost transformation, else None.
        self._func_level = torch._C._functorch.peek_interpreter_stack
        self._forward_ad = torch.autograd.forward_ad
        self._increment_version = torch.autograd.graph.increment_version
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
        """Makes a GPU torch's current device, and the one before it again on leaving. Nothing where
        there is no such GPU, so that the library says what is missing."""
        if not self.has_gpu() or ordinal >= self._torch.cuda.device_count():
            return nullcontext()
        return self._torch.cuda.device(ordinal)

    def stream_scope(self, ordinal: int, stream: int) -> Any:
        """Makes a stream, given by its number, the current one of a GPU: memory for results and
        copies then belongs to it, and what was queued there before comes first."""
        cuda = self._torch.cuda
        if stream == 0:
            return cuda.stream(cuda.default_stream(ordinal))
        return cuda.stream(cuda.ExternalStream(stream, device=ordinal))

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

    def is_transformed(self) -> bool:
        """Whether torch.func.vmap, grad, jvp or the like runs the caller, or forward-mode
        derivatives are being computed."""
        return self._func_level() is not None or self._forward_ad._current_level >= 0

    def check_operands(self, operands: dict[str, Any], tables: Sequence[Any] = ()) -> None:
        named = [*operands.items(), *((f"score_tables[{i}]", x) for i, x in enumerate(tables))]
        for name, array in named:
            if self.is_one(array):
                self._check_layout(array, name)
        grad, transformed = self._is_grad_enabled(), self.is_transformed()
        if not grad and not transformed:
            return
        if transformed:
            for name, array in named:
                if self.is_one(array):
                    self._check_transformed(array, name)
        asking = [n for n, x in named if x is not None and getattr(x, "requires_grad", False)]
        if grad and asking:
            raise Unsupported(f"{', '.join(asking)}: {NO_GRADIENTS}")

    def _check_layout(self, array: Any, name: str) -> None:
        """A tensor whose elements lie in memory at strides."""
        check_nested(array, name)
        if array.layout is not self._torch.strided:
            raise InvalidArgument(
                f"{name}: expected a dense (strided) tensor, got layout {array.layout}; pass "
                f"{name}.to_dense()"
            )

    def _check_transformed(self, array: Any, name: str) -> None:
        functorch = self._torch._C._functorch
        if functorch.is_batchedtensor(array):
            raise Unsupported(
                f"{name}: expected a tensor with memory of its own, got one that torch.vmap maps over; "
                "call stof outside of it, with the mapped dimension joined to batch or heads"
            )
        if functorch.is_functorch_wrapped_tensor(array):
            raise Unsupported(
                f"{name}: expected a tensor without derivatives because stof computes none, got one "
                "inside torch.func.grad, vjp, jvp or functionalize; call stof outside of it, or pass "
                f"{name}.detach() of a tensor made outside"
            )
        if self._forward_ad.unpack_dual(array).tangent is not None:
            raise Unsupported(
                f"{name}: expected a tensor without a tangent because stof computes no derivatives, got "
                f"a dual one; pass torch.autograd.forward_ad.unpack_dual({name}).primal"
            )

    def written(self, *arrays: Any) -> None:
        for array in arrays:
            if array is not None and not array.is_inference():
                self._increment_version(array)

    def dtype_code(self, dtype: Any, argument: str) -> int:
        code = self._codes.get(dtype)
        if code is None:
            raise dtype_error(argument, dtype)
        return code

    def view(self, array: Any, argument: str) -> View:
        self._check_layout(array, argument)
        if is_fake(array):
            raise InvalidArgument(
                f"{argument}: expected a tensor with memory, got a fake one; call outside of "
                "FakeTensorMode with the tensor that it stands for"
            )
        if self._func_level() is not None:
            self._check_transformed(array, argument)
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
