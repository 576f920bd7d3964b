"""Plans of the C interface, and which of them may run where.

A plan for a GPU works on one stream at a time. Instances therefore keeps one per stream, and others
for recording into CUDA graphs, so that a graph and a stream never share one.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from contextlib import nullcontext
from typing import Any

from ._native import check, encoded, json_of, library, structs, text_of
from .arrays import int64_array, native_tensor, torch_framework
from .framework import CPU, Device, View
from .interrupts import interruptible
from .errors import InvalidArgument
from .locks import Locked
from .values import extent
from .mask import Mask
from .problem import Problem

#: Bytes that divide all addresses and strides unless a call says otherwise.
FULL_ALIGNMENT = 16
#: Pairs from which on planning on the CPU may be interrupted.
_LONG = 1 << 24
#: Streams whose instances are kept, those last used; torch hands out 32 streams a device and
#: priority.
_MAX_STREAMS = 32


class NativePlan:
    """Owns a stof_plan."""

    __slots__ = ("handle", "_release")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._release = library().stof_plan_release

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self._release(handle)

    def describe(self) -> str:
        return text_of(library().stof_plan_describe, self.handle)

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json_of(library().stof_plan_to_json, self.handle)
        return facts


def device_scope(device: Device) -> Any:
    """Keeps torch's current device: the library makes the plan's GPU the thread's current one."""
    torch = torch_framework()
    if device.kind == "cpu" or torch is None:
        return nullcontext()
    return torch.scope(device.ordinal)


def stream_scope(device: Device, stream: Any) -> Any:
    """The same, with a stream given by its number as the current one; None leaves it."""
    torch = torch_framework()
    if stream is None or torch is None or not torch.has_gpu():
        return device_scope(device)
    if isinstance(stream, torch._torch.cuda.Stream):
        raise InvalidArgument(
            "stream: expected the number of a stream, got a torch.cuda.Stream; pass its .cuda_stream, "
            "or call inside `with torch.cuda.stream(...)`"
        )
    number = extent(stream, "stream", 0)
    return torch.stream_scope(device.ordinal, number)


def build(
    problem: Problem,
    mask: Mask | View,
    device: Device,
    kernel: str | None = None,
    alignment: int = FULL_ALIGNMENT,
    stream: int = 0,
) -> NativePlan:
    """Plans. A View is a boolean array on `device`, read on `stream`."""
    target = structs.Target()
    torch = torch_framework()
    if device != CPU and torch is not None and torch.has_gpu() and torch.is_capturing():
        raise InvalidArgument(
            "plan: expected one that was made before the capture of a CUDA graph, since planning "
            "allocates, compiles and waits; make the same call, or the plan, once before capturing"
        )
    if device != CPU:
        target = structs.Target(
            device=structs.GPU,
            ordinal=device.ordinal,
            alignment=alignment,
            kernel=None if kernel is None else encoded(kernel, "kernel"),
        )
    elif kernel is not None:
        raise InvalidArgument(
            f'kernel: expected None because the plan is for the CPU, got {kernel!r}; set device="cuda"'
        )
    native = problem.native()

    def plan() -> NativePlan:
        return _built(problem, native, mask, device, target, stream)

    return interruptible(plan) if device != CPU or _is_long(problem) else plan()


def _is_long(problem: Problem) -> bool:
    """Whether planning on the CPU may take so long that somebody presses Ctrl-C, to whom a thread
    is worth its 0.1 ms."""
    if problem.cu_seqlens_q is not None and problem.cu_seqlens_kv is not None:
        return problem.cu_seqlens_q[-1] * problem.cu_seqlens_kv[-1] >= _LONG
    return problem.batch * problem.num_heads * problem.seq_q * problem.seq_kv >= _LONG


def _built(
    problem: Problem,
    native: structs.AttentionProblem,
    mask: Mask | View,
    device: Device,
    target: structs.Target,
    stream: int,
) -> NativePlan:
    handle = ctypes.c_void_p()
    where = (ctypes.byref(target), ctypes.byref(handle))
    with device_scope(device):
        if isinstance(mask, View):
            visible = native_tensor(mask)
            check(
                library().stof_plan_dense_attention(
                    ctypes.byref(native), ctypes.byref(visible), where[0], stream or None, where[1]
                )
            )
        elif problem.cu_seqlens_q is not None and problem.cu_seqlens_kv is not None:
            check(
                library().stof_plan_varlen_attention(
                    ctypes.byref(native),
                    mask._handle,
                    len(problem.cu_seqlens_q) - 1,
                    int64_array(problem.cu_seqlens_q),
                    int64_array(problem.cu_seqlens_kv),
                    *where,
                )
            )
        else:
            check(library().stof_plan_attention(ctypes.byref(native), mask._handle, *where))
    assert handle.value is not None
    return NativePlan(handle.value)


#: Instances that a CUDA graph holds the addresses of. Nobody can tell when a graph goes, so these
#: stay as long as the process.
_recorded: list[NativePlan] = []


class Instances(Locked):
    """The instances of one plan, made when first needed. Safe from several threads."""

    def __init__(
        self,
        problem: Problem,
        mask: Mask | View,
        device: Device,
        kernel: str | None,
        stream: int = 0,
    ) -> None:
        super().__init__()
        self.problem, self.mask, self.device, self.kernel = problem, mask, device, kernel
        self._spare: list[NativePlan] = []  # of full alignment, on no stream yet
        self._by_stream: OrderedDict[tuple[int, int], NativePlan] = OrderedDict()
        self._by_recording: dict[tuple[int, int], NativePlan] = {}
        self.first = build(problem, mask, device, kernel, stream=stream)
        self._spare.append(self.first)

    def on(self, stream: int, alignment: int, recording: bool) -> NativePlan:
        """The instance for a GPU's stream, and for operands of that alignment.

        Raises InvalidArgument where one would have to be built while a graph is recorded.
        """
        key = (stream, alignment)
        found = (self._by_recording if recording else self._by_stream).get(key)
        if found is not None:
            if not recording:
                self.used(key)
            return found
        with self._lock:
            return self._record(key) if recording else self._open(key)

    def used(self, key: tuple[int, int]) -> None:
        """Keeps the instance of a stream that was just found longer than those of streams that have
        waited longer."""
        if len(self._by_stream) > 1:
            with self._lock:
                if key in self._by_stream:  # else another thread's stream has just taken its place
                    self._by_stream.move_to_end(key)

    def _open(self, key: tuple[int, int]) -> NativePlan:
        stream, alignment = key
        found = self._by_stream.get(key)
        if found is None:
            if alignment == FULL_ALIGNMENT and self._spare:
                found = self._spare.pop()
            else:
                found = self._again(alignment)
            self._by_stream[key] = found
            if len(self._by_stream) > _MAX_STREAMS:
                self._by_stream.popitem(last=False)
        return found

    def _record(self, key: tuple[int, int]) -> NativePlan:
        """Takes an instance that streams have used: recording allocates nothing."""
        found = self._by_recording.get(key)
        if found is None:
            alignment = key[1]
            if alignment == FULL_ALIGNMENT and self._spare:
                found = self._spare.pop()
            else:
                same = [k for k in self._by_stream if k[1] == alignment]
                if not same:
                    raise InvalidArgument(
                        "plan: expected one that has run outside of the recording of a CUDA graph with "
                        f"operands aligned to {alignment} bytes, got none; run it once before capturing"
                    )
                found = self._by_stream.pop(same[-1])
            self._by_recording[key] = found
            _recorded.append(found)
        return found

    def _again(self, alignment: int) -> NativePlan:
        if isinstance(self.mask, View):
            raise InvalidArgument(
                "plan: expected its first stream and operands aligned to 16 bytes because it was made "
                f"from a boolean tensor that may have changed, got another stream or {alignment} "
                "bytes; plan again there"
            )
        return build(self.problem, self.mask, self.device, self.kernel, alignment)
