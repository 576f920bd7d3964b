"""The quick way of Plan.run(): a call like this thread's last one of the plan.

Most calls of a plan bring torch tensors of the same layouts and nothing else. Then only what may
differ is looked at: layouts, addresses, stream, and whether gradients or a tracer watch. Everything
else goes the long way, which checks all of it and says what is wrong.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from ._native import check, library, structs
from .native_plan import FULL_ALIGNMENT


@lru_cache(maxsize=None)
def plan_run() -> Any:
    """stof_plan_run() by addresses: ctypes converts numbers quicker than typed pointers."""
    by_address = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
    return by_address(("stof_plan_run", library()))


class Again:
    """A prepared call and what tensors must look like for it."""

    __slots__ = (
        "_torch",
        "_call",
        "_tensor",
        "_shapes",
        "_strides",
        "_arguments",
        "_dtype",
        "_ordinal",
        "_like_q",
        "_streams",
        "_options",
        "_lse",
    )

    def __init__(self, framework: Any, plan: Any, call: Any, q: Any, k: Any, v: Any) -> None:
        self._torch = framework
        self._call = call
        self._tensor = type(q)
        self._shapes = tuple(x.shape for x in (q, k, v))
        contiguous = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
        self._strides = None if contiguous else tuple(x.stride() for x in (q, k, v))
        self._dtype, self._ordinal = q.dtype, q.get_device()  # -1: the CPU
        self._like_q = tuple(q.shape) == plan._out_shape and q.is_contiguous()
        self._arguments = tuple(ctypes.addressof(x) for x in (call.tensors, call.options))
        self._streams = plan._instances._by_stream
        self._options = call.options
        self._lse = plan._returns_lse

    def is_autocast(self) -> bool:
        return bool(self._torch.is_autocast())

    def fits(self, q: Any, k: Any, v: Any) -> bool:
        tensor, dtype, ordinal = self._tensor, self._dtype, self._ordinal
        if type(q) is not tensor or type(k) is not tensor or type(v) is not tensor:
            return False
        q_shape, k_shape, v_shape = self._shapes
        try:
            shapes_fit = q.shape == q_shape and k.shape == k_shape and v.shape == v_shape
        except RuntimeError:  # a nested tensor has none
            return False
        if not (shapes_fit and q.dtype is dtype and k.dtype is dtype and v.dtype is dtype):
            return False
        if ordinal < 0:  # which get_device() also is of tensors without memory
            if not (q.is_cpu and k.is_cpu and v.is_cpu):
                return False
        elif not q.get_device() == k.get_device() == v.get_device() == ordinal:
            return False
        if self._strides is None:
            if not (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()):
                return False
        elif self._strides != (q.stride(), k.stride(), v.stride()):
            return False
        torch = self._torch
        if torch._num_modes() > 0 or torch._jit_state() is not None:
            return False
        if torch.is_transformed():
            return False
        if q.is_neg() or k.is_neg() or v.is_neg():
            return False
        if torch._is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
            return False
        return ordinal < 0 or bool(torch.current_device() == ordinal)

    def run(self, plan: Any, q: Any, k: Any, v: Any) -> Any:
        """Of tensors that fit; `plan` is the one that it was made for."""
        call, torch = self._call, self._torch
        try:
            if self._like_q:
                out = torch.empty_like(q)
            else:
                out = torch.empty(plan._out_shape, plan._problem.dtype, q)
            addresses = call.stride_bits
            call.q.data = address = q.data_ptr()
            addresses |= address
            call.k.data = address = k.data_ptr()
            addresses |= address
            call.v.data = address = v.data_ptr()
            addresses |= address
        except (
            RuntimeError
        ):  # a layout without strides looks contiguous until its address is asked for
            torch.check_operands(dict(q=q, k=k, v=v))
            raise
        call.out.data = address = out.data_ptr()
        addresses |= address
        lse = None
        if self._lse:
            lse = torch.empty(plan._lse_shape, structs.FLOAT32, q)
            call.lse.data = lse.data_ptr()
        if self._ordinal < 0:
            self._options.num_threads = plan.threads_of(0)
            status = plan_run()(plan._instances.first.handle, *self._arguments)
        else:
            stream = torch.current_stream(self._ordinal)
            instance = None
            if not addresses & (FULL_ALIGNMENT - 1) and not torch.is_capturing():
                instance = self._streams.get((stream, FULL_ALIGNMENT))
                if instance is not None and len(self._streams) > 1:
                    plan._instances.used((stream, FULL_ALIGNMENT))
            if instance is None:  # another stream or alignment, or a graph is recorded
                status = plan._launch(torch, call, addresses)
            else:
                self._options.stream = stream
                status = plan_run()(instance.handle, *self._arguments)
        if status:
            check(status)
        return out if lse is None else (out, lse)
