"""Attention on a GPU over lists of key blocks that the GPU itself makes."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

from ._native import check, json_of, library, structs, structs_gpu
from .arrays import int64_array
from .calls import prepare
from .gpu_operands import Handle, current_stream, framework_for, gpu_of, pointer_to, target_of
from .values import extent, number, truth, wholes
from .native_plan import device_scope, stream_scope
from .problem import PositionBias, Problem, but

#: Arguments that other plans have not.
_OWN = (
    "block_q",
    "block_kv",
    "max_blocks",
    "per_kv_head",
    "expected_share",
    "key_block_sizes",
)


class BlockListPlan:
    """An attention problem whose mask is lists of key blocks in GPU memory: new ones for each call
    if need be, which the host never sees (video diffusion, top-k block selection).

    Query block i is rows i * block_q and on, key block j keys j * block_kv and on; both sizes are
    multiples of 64, and the last blocks end with the sequence. max_blocks: most blocks of a list
    (0: as many as there are). per_kv_head: one list serves all query heads of a key/value head.
    expected_share: of key blocks in a list, for the choice of kernel. key_block_sizes: how many
    keys of each key block exist, its first ones. The other arguments are those of stof.plan().
    Until the first update() nothing is visible. Calls of one plan belong on one stream, or must be
    ordered by events.

    Raises InvalidArgument, Unsupported with a reason, or NotFound where there is no such GPU.
    """

    def __init__(
        self,
        *,
        batch: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        seq_q: int,
        seq_kv: int | None = None,
        head_dim: int,
        head_dim_v: int | None = None,
        dtype: Any,
        device: Any = "cuda",
        block_q: int = 64,
        block_kv: int = 64,
        max_blocks: int = 0,
        per_kv_head: bool = False,
        expected_share: float = 0.25,
        key_block_sizes: Sequence[int] | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        alibi: bool = False,
        bias: bool = False,
        sink: bool = False,
        position_bias: PositionBias | None = None,
        return_lse: bool = False,
        alignment: str = "top_left",
        kernel: str | None = None,
    ) -> None:
        given = but(locals(), "self", "device", "kernel", *_OWN)
        self._device = gpu_of(device)
        self._problem = Problem.make(**given)
        sizes = (
            None
            if key_block_sizes is None
            else int64_array(wholes(key_block_sizes, "key_block_sizes"))
        )
        shape = structs_gpu.BlockListShape(
            per_kv_head=truth(per_kv_head, "per_kv_head"),
            block_q=extent(block_q, "block_q", 1),
            block_kv=extent(block_kv, "block_kv", 1),
            max_blocks=extent(max_blocks, "max_blocks", 0),
            expected_share=number(expected_share, "expected_share"),
            key_block_sizes=sizes,
            num_key_block_sizes=0 if sizes is None else len(sizes),
        )
        handle = ctypes.c_void_p()
        problem, target = self._problem.native(), target_of(self._device, kernel)
        with device_scope(self._device):
            check(
                library().stof_plan_block_lists(
                    ctypes.byref(problem),
                    ctypes.byref(shape),
                    ctypes.byref(target),
                    ctypes.byref(handle),
                )
            )
        self._handle = Handle(handle.value, "stof_block_list_plan_release")
        shapes = self._problem.shapes()
        self._out_shape, self._lse_shape = shapes["out"], shapes["lse"]

    def facts(self) -> dict[str, Any]:
        """Problem, kernel, bytes on the device, predicted time in µs."""
        facts: dict[str, Any] = json_of(library().stof_block_list_plan_to_json, self._handle.value)
        return facts

    def update(self, counts: Any, ids: Any, *, stream: int | None = None) -> None:
        """Takes the lists as they are when the stream comes to it.

        counts: int32 [batch|1, heads|1, query blocks]; ids: int32 [batch|1, heads|1, query blocks,
        up to max_blocks], of which the first `count` of a row are read, in any order; torch tensors
        on the plan's GPU, any strides. Heads are query heads, or key/value heads with per_kv_head.
        Nothing is allocated, compiled or waited for, so that a CUDA graph can hold it. Wrong ids
        are left out and remembered for check(). Raises InvalidArgument for tensors of other shapes,
        types or places.
        """
        lists = (
            pointer_to(counts, "counts", self._device),
            pointer_to(ids, "ids", self._device),
        )
        with stream_scope(self._device, stream):
            check(
                library().stof_block_list_plan_update(
                    self._handle.value, *lists, current_stream(self._device)
                )
            )

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        out: Any = None,
        lse: Any = None,
        alibi: Any = None,
        bias: Any = None,
        sink: Any = None,
        position_bias: Any = None,
        stream: int | None = None,
    ) -> Any:
        """As Plan.run(), with the lists of the last update(); torch tensors on the plan's GPU.

        Returns out [batch, num_heads, seq_q, head_dim_v], or (out, lse) with return_lse, lse
        float32 [batch, num_heads, seq_q]. Raises InvalidArgument naming the argument, what was
        expected and got; Unsupported for tensors that require gradients while these are enabled.
        """
        framework = framework_for(q)
        extras = dict(alibi=alibi, bias=bias, sink=sink, position_bias=position_bias)
        framework.check_operands(dict(q=q, k=k, v=v, out=out, lse=lse, **extras))
        with stream_scope(self._device, stream):
            return self._run(framework, (q, k, v), out, lse, tuple(extras.values()))

    def _run(
        self, framework: Any, qkv: tuple[Any, ...], out: Any, lse: Any, extras: tuple[Any, ...]
    ) -> Any:
        """On the current stream."""
        call = prepare(self._problem, self._device, framework, qkv, out, lse, extras)
        if call.copies or call.widened:
            qkv = tuple(
                framework.contiguous(x) if i in call.copies else x for i, x in enumerate(qkv)
            )
            extras = tuple(
                framework.to_float32(x) if i in call.widened else x for i, x in enumerate(extras)
            )
            call = prepare(self._problem, self._device, framework, qkv, out, lse, extras)
        written = out, lse
        if out is None:
            out = framework.empty(self._out_shape, self._problem.dtype, qkv[0])
            call.out.data = framework.pointer(out)
        if lse is None and self._problem.return_lse:
            lse = framework.empty(self._lse_shape, structs.FLOAT32, qkv[0])
            call.lse.data = framework.pointer(lse)
        check(
            library().stof_block_list_plan_run(
                self._handle.value, call.arguments[0], current_stream(self._device)
            )
        )
        framework.written(*written)
        return (out, lse) if self._problem.return_lse else out

    def check(self, *, stream: int | None = None) -> None:
        """Waits for the stream. Raises InvalidArgument naming batch, head, query block and value of
        the first wrong entry since the last check."""
        with stream_scope(self._device, stream):
            check(
                library().stof_block_list_plan_check(
                    self._handle.value, current_stream(self._device)
                )
            )

    def __repr__(self) -> str:
        return f"<stof.BlockListPlan {self.facts()['problem']}, on {self._device}>"
