"""Steps of decoding on a GPU: the newest tokens against a key/value cache that grows."""

from __future__ import annotations

import ctypes
from typing import Any

from ._native import check, json_of, library, structs, structs_gpu
from .errors import InvalidArgument
from .gpu_operands import Handle, current_stream, framework_for, gpu_of, pointer_to, target_of
from .mask import Mask
from .native_plan import device_scope, stream_scope
from .planning import mask_of
from .values import extent, whole
from .problem import Problem, but, flag

#: Arguments that other plans have not.
_OWN = ("lengths", "page_size", "window", "sink_tokens", "mask", "max_seq_kv")


class DecodePlan:
    """A decoding step planned for one GPU: run it while the cache grows, in a CUDA graph too.

    The seq_q (1 to 16) queries of a sequence are its newest tokens: query i stands at key length -
    seq_q + i. max_seq_kv: most keys of a sequence, the new ones included. lengths: run() brings
    each sequence's number of keys; else all have max_seq_kv. page_size: rows of a cache page, a
    multiple of 16 up to 256; 0 for a contiguous cache. Causal, unless window = (left, right),
    inclusive, None for unbounded, says otherwise; sink_tokens first keys stay visible whatever the
    window. mask instead of a window: a stof.Mask or text of the scores [seq_q, max_seq_kv], aligned
    at the bottom right. The other arguments are those of stof.plan(). A plan works on one stream at
    a time.

    Raises InvalidArgument, Unsupported with a reason, or NotFound where there is no such GPU.
    """

    def __init__(
        self,
        *,
        batch: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        seq_q: int = 1,
        max_seq_kv: int,
        head_dim: int,
        head_dim_v: int | None = None,
        dtype: Any,
        device: Any = "cuda",
        lengths: bool = False,
        page_size: int = 0,
        window: tuple[int | None, int | None] = (None, 0),
        sink_tokens: int = 0,
        mask: Mask | str | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        alibi: bool = False,
        sink: bool = False,
        return_lse: bool = False,
    ) -> None:
        given = but(locals(), "self", "device", *_OWN)
        self._device = gpu_of(device)
        # The same checks as of any plan; what is special to decoding the library checks.
        problem = Problem.make(**given, seq_kv=max_seq_kv, alignment="bottom_right")
        self._problem = problem
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise InvalidArgument(f"window: expected (left, right), got {window!r}")
        left, right = (
            x if x is None else whole(x, name)
            for x, name in zip(window, ("window[0]", "window[1]"))
        )
        native = structs_gpu.DecodeProblem(
            dtype=problem.dtype,
            batch=problem.batch,
            num_heads_q=problem.num_heads,
            num_heads_kv=problem.num_heads_kv,
            seq_q=problem.seq_q,
            max_seq_kv=problem.seq_kv,
            head_dim_qk=problem.head_dim,
            head_dim_v=problem.head_dim_v,
            page_size=extent(page_size, "page_size", 0),
            lengths=flag(lengths, "lengths"),
            no_causal=right is None,
            window_right=right or 0,
            has_window_left=left is not None,
            has_scale=scale is not None,
            window_left=left or 0,
            sink_tokens=extent(sink_tokens, "sink_tokens", 0),
            scale=problem.scale or 0.0,
            softcap=problem.softcap,
            alibi=alibi,
            sink=sink,
            return_lse=return_lse,
        )
        masked = None
        if mask is not None:
            masked = mask_of(mask)
            if masked is None:
                raise InvalidArgument(
                    f"mask: expected a stof.Mask, its text or None, got {type(mask).__name__}"
                )
        handle, target = ctypes.c_void_p(), target_of(self._device)
        with device_scope(self._device):
            check(
                library().stof_plan_decode(
                    ctypes.byref(native),
                    None if masked is None else masked._handle,
                    ctypes.byref(target),
                    ctypes.byref(handle),
                )
            )
        self._handle = Handle(handle.value, "stof_decode_plan_release")
        shapes = problem.shapes()
        self._out_shape, self._lse_shape = shapes["out"], shapes["lse"]

    def facts(self) -> dict[str, Any]:
        """Problem, kernel, blocks of a launch, bytes on the device."""
        facts: dict[str, Any] = json_of(library().stof_decode_plan_to_json, self._handle.value)
        return facts

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        out: Any = None,
        lse: Any = None,
        lengths: Any = None,
        page_table: Any = None,
        alibi: Any = None,
        sink: Any = None,
        stream: int | None = None,
    ) -> Any:
        """Attention of the newest tokens; torch tensors on the plan's GPU, aligned to 16 bytes.

        q [batch, num_heads, seq_q, head_dim]; k [batch, num_heads_kv, max_seq_kv, head_dim] and v,
        or with pages [pages, num_heads_kv, page_size, head_dim]; rows and pages past a sequence's
        length are not read. lengths int32 [batch] and page_table int32 [batch, pages of a sequence]
        are read when the kernel runs. alibi and sink are float32 [num_heads]. Nothing is allocated
        but out and lse, nothing compiled or waited for.

        Returns out [batch, num_heads, seq_q, head_dim_v], or (out, lse) with return_lse. A query
        that sees nothing gives 0 and -inf. Raises InvalidArgument naming the argument, what was
        expected and got; Unsupported for layouts that the kernel does not take, and for tensors
        that require gradients while these are enabled.
        """
        framework = framework_for(q)
        operands = dict(q=q, k=k, v=v, out=out, lse=lse, alibi=alibi, sink=sink)
        framework.check_operands(operands)
        operands.update(lengths=lengths, page_table=page_table)
        with stream_scope(self._device, stream):
            return self._run(framework, operands)

    def _run(self, framework: Any, operands: dict[str, Any]) -> Any:
        """On the current stream."""
        written = operands["out"], operands["lse"]
        if operands["out"] is None:
            operands["out"] = framework.empty(self._out_shape, self._problem.dtype, operands["q"])
        if operands["lse"] is None and self._problem.return_lse:
            operands["lse"] = framework.empty(self._lse_shape, structs.FLOAT32, operands["q"])
        tensors = structs_gpu.DecodeTensors()
        for name, array in operands.items():
            field = "alibi_slopes" if name == "alibi" else name
            setattr(tensors, field, pointer_to(array, name, self._device))
        check(
            library().stof_decode_plan_run(
                self._handle.value, ctypes.byref(tensors), current_stream(self._device)
            )
        )
        framework.written(*written)
        out, lse = operands["out"], operands["lse"]
        return (out, lse) if self._problem.return_lse else out

    def __repr__(self) -> str:
        return f"<stof.DecodePlan {self.facts()['problem']}, on {self._device}>"
