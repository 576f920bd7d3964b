"""Plans: an attention problem with its mask, prepared once and run many times."""

from __future__ import annotations

import threading
from typing import Any, NoReturn, Sequence

from . import identity, layout, masks
from ._native import check, library, structs
from .again import Again
from .arrays import adopt, device_of, framework_of, hand_back, import_torch
from .framework import CPU, Device, Framework, View
from .arrays import torch_compiles, torch_framework
from .calls import Call, prepare
from .errors import InvalidArgument, Unsupported
from .mask import Mask
from .other_names import refuse
from .values import items, whole
from .native_plan import FULL_ALIGNMENT, Instances, device_scope, stream_scope
from .problem import PositionBias, Problem, but
from .spoken import spoken

_MAX_CALLS = 16  # prepared calls that a thread keeps of a plan: one per layout of its arrays
_NO_EXTRAS = (None, None, None, None)

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


def mask_of(mask: Any) -> Mask | None:
    """A Mask from a Mask, its text, or None (everything); None for other objects."""
    if isinstance(mask, Mask):
        return mask
    if mask is None:
        return masks.all()
    if isinstance(mask, str):
        return masks.parse(mask)
    return None


def _boolean_mask(mask: Any, device: Device, problem: Problem) -> Mask | View:
    """What a boolean array given as a mask becomes: a Mask, or on a GPU the array itself."""
    try:
        framework, array = adopt(mask, "mask")
    except InvalidArgument:
        hint, name = "", str(getattr(mask, "__name__", ""))
        if name and getattr(masks, name, None) is mask:
            hint = f"; call it: stof.masks.{name}(...)"
        elif hasattr(mask, "mask_mod"):
            hint = "; pass stof.compat.flex.to_stof_mask(block_mask), or call its flex_attention()"
        elif callable(mask):
            hint = "; stof.compat.flex takes functions of (b, h, q, k)"
        raise InvalidArgument(
            "mask: expected a stof.Mask, its text, a boolean array or None, got "
            f"{type(mask).__name__}{hint}"
        ) from None
    view = framework.view(array, "mask")
    if view.dtype != structs.BOOL:
        raise InvalidArgument(_no_booleans(view))
    extents = (problem.batch, problem.num_heads, problem.seq_q, problem.seq_kv)
    given = view.shape if len(view.shape) == 4 else (1, 1, *view.shape)
    if len(given) != 4 or not all(
        got == all_of or got == 1 and axis < 3
        for axis, (got, all_of) in enumerate(zip(given, extents))
    ):
        hint = ""
        if view.shape == (problem.batch, problem.seq_kv):
            hint = "; if this is a padding mask [batch, seq], pass mask[:, None, None, :]"
        elif len(view.shape) == 3:
            hint = "; give it a heads dimension: mask[:, None], or a batch dimension: mask[None]"
        elif problem.cu_seqlens_q is None:
            q, k = problem.shapes()["q"], problem.shapes()["k"]
            hint = layout.hint_of_lengths(tuple(view.shape[-2:]), q, k)
        batch, heads, seq_q, seq_kv = (str(extent) for extent in extents)
        raise InvalidArgument(
            f"mask: expected shape [{seq_q}, {seq_kv}] or [{_or_one(batch)}, {_or_one(heads)}, "
            f"{_or_one(seq_q)}, {seq_kv}], got {list(view.shape)}{hint}"
        )
    if view.device == device == CPU:
        return masks.dense(array)
    if view.device != device:
        raise InvalidArgument(
            f"mask: expected a boolean array on {device} like q, got one on {view.device}"
        )
    return view


def _or_one(extent: str) -> str:
    return extent if extent == "1" else f"{extent}|1"


def _no_booleans(view: View) -> str:
    """What to do with an array of another type given as a mask."""
    start = f"mask: expected booleans (true is visible), got {view.dtype_name} {list(view.shape)}; "
    if "int" not in view.dtype_name:
        return start + (
            "an additive mask goes to bias= (float32, broadcastable to [batch, heads, seq_q, seq_kv]), "
            "or compare it: mask == 0 where 0 means visible"
        )
    if len(view.shape) != 2:
        return start + "pass mask != 0 where 0 means hidden"
    return start + (
        "pass mask != 0, or if this is a padding mask [batch, seq] of 0 and 1, as tokenizers give, "
        "(attention_mask != 0)[:, None, None, :]"
    )


class Plan:
    """An attention problem and its mask, planned for one device. Made by plan() and varlen_plan();
    calling it is run().

    Immutable; threads may share it. Pickled as problem, mask and device, and planned again where it
    is loaded. On a GPU it works on one stream at a time; a further stream, and the recording of
    CUDA graphs, get an instance of their own. Graphs of one plan share that: replay them one after
    another, or plan for each (see docs/python.md).
    """

    def __init__(
        self,
        problem: Problem,
        mask: Mask | View,
        device: Device,
        kernel: str | None = None,
        stream: int = 0,
    ) -> None:
        if not isinstance(problem, Problem):
            raise InvalidArgument(
                "stof.Plan: plans are made by stof.plan(mask, batch=..., ...) and stof.varlen_plan()"
            )
        self._problem = problem
        self._mask = mask
        self._device = device
        self._kernel = kernel
        self._instances = Instances(problem, mask, device, kernel, stream)
        if isinstance(mask, View):  # its memory is not kept
            self._mask = self._instances.mask = mask._replace(data=0)
        self._local = threading.local()
        self._run = library().stof_plan_run
        shapes = problem.shapes()
        self._out_shape, self._lse_shape = shapes["out"], shapes["lse"]
        self._qkv_shapes = shapes["q"], shapes["k"], shapes["v"]
        self._returns_lse = problem.return_lse
        self._equal_heads = problem.num_heads == problem.num_heads_kv
        self._name = identity.named(self)  # what compiled code holds in its place

    # --- what it is ------------------------------------------------------------------------------

    @property
    def mask(self) -> Mask | None:
        """None where it was planned from a boolean array on a GPU."""
        return self._mask if isinstance(self._mask, Mask) else None

    @property
    def problem(self) -> Problem:
        """Shapes, element type and options."""
        return self._problem

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        return str(self._device)

    @property
    def dtype(self) -> str:
        """Of q, k, v and out: "float32", "float16" or "bfloat16"."""
        return self._problem.dtype_name

    def facts(self) -> dict[str, Any]:
        """On a GPU the kernel, tiles, bytes on the device and predicted time; on the CPU what the
        plan holds."""
        return self._instances.first.facts()

    def __repr__(self) -> str:
        return f"<stof.Plan {self._instances.first.describe()}, on {self._device}>"

    # --- copies ----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._mask, Mask):
            raise Unsupported(
                "plan: a plan from a boolean tensor on a GPU cannot be pickled, since its mask never "
                "came to the host; plan from stof.masks.dense(visible.cpu())"
            )
        return Plan, (self._problem, self._mask, self._device, self._kernel)

    def __copy__(self) -> Plan:
        return self

    def __deepcopy__(self, memo: object) -> Plan:
        return self

    def takes(self, framework: Framework, q: Any, k: Any, v: Any) -> bool:
        """Whether these shapes and q's element type, in host memory, are the planned ones; run()
        checks the rest."""
        return (
            (q.shape, getattr(k, "shape", None), getattr(v, "shape", None)) == self._qkv_shapes
            and framework.dtype_code(q.dtype, "q") == self._problem.dtype
            and self._device == CPU
        )

    # --- running ---------------------------------------------------------------------------------

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
        score_tables: Sequence[Any] = (),
        stream: int | None = None,
        num_threads: int = 0,
    ) -> Any:
        """Attention of q, k, v as planned.

        q [batch, num_heads, seq_q, head_dim], k [batch, num_heads_kv, seq_kv, head_dim] and v
        [batch, num_heads_kv, seq_kv, head_dim_v] of any strides, 0 (expanded) too; a last stride
        other than 1 is copied first. Packed sequences: [rows, heads, head_dim]. All are NumPy
        arrays, or torch tensors, or objects with __dlpack__.

        out and lse, where given, are written: out [batch, num_heads, seq_q, head_dim_v] of the
        plan's dtype with a last stride of 1, lse float32 [batch, num_heads, seq_q] (packed:
        [num_heads, rows]). Otherwise they are new and contiguous. alibi [num_heads], bias
        (broadcastable to [batch, num_heads, seq_q, seq_kv]), sink [num_heads] and position_bias
        [num_buckets, num_heads] are float32 and given where the plan was made with them; float16
        and bfloat16 are widened.

        On a GPU it returns once the work is on the stream, torch's current one unless `stream`
        gives another as a number; new results and copies are then memory of that stream.
        num_threads (CPU) 0 is all cores.

        Returns out, or (out, lse) with return_lse; lse is the natural log. A row that sees nothing
        gives 0 and -inf. Raises InvalidArgument naming the argument, what was expected and got.
        """
        if type(score_tables) is not tuple or type(num_threads) is not int:
            score_tables = tuple(items(score_tables, "score_tables", "arrays"))
            num_threads = whole(num_threads, "num_threads", bits=32)
        compiles = torch_compiles()
        again = None if compiles else getattr(self._local, "again", None)
        if (
            again is not None
            and out is lse is alibi is bias is sink is position_bias is stream is None
            and not score_tables
            and not num_threads
            and again.fits(q, k, v)
        ):
            return again.run(self, q, k, v)
        operands: dict[str, Any] = dict(
            q=q,
            k=k,
            v=v,
            out=out,
            lse=lse,
            alibi=alibi,
            bias=bias,
            sink=sink,
            position_bias=position_bias,
        )
        how: dict[str, Any] = dict(
            score_tables=score_tables, stream=stream, num_threads=num_threads
        )
        framework = None if compiles else framework_of(q)
        if framework is not None:
            framework.check_operands(operands, score_tables)
        if compiles or (framework is not None and framework.is_traced(q, k, v)):
            from . import torch_ops

            return torch_ops.run(self, **operands, **how)
        if framework is None:
            if q is None:
                raise InvalidArgument("q: expected an array, got None")
            return self._run_adopted(operands, how)
        if stream is not None and self._device != CPU and framework.name == "torch":
            with stream_scope(self._device, stream):
                return self.run(**operands, **{**how, "stream": None})
        extras: tuple[Any, ...] = _NO_EXTRAS
        if alibi is not None or bias is not None or sink is not None or position_bias is not None:
            extras = (alibi, bias, sink, position_bias)
        if score_tables:
            extras = (*extras, *score_tables)
        call = self._call(framework, (q, k, v), out, lse, extras)
        if call.copies or call.widened:
            q, k, v = (
                framework.contiguous(x) if i in call.copies else x for i, x in enumerate((q, k, v))
            )
            extras = tuple(
                framework.to_float32(x) if i in call.widened else x for i, x in enumerate(extras)
            )
            call = self._call(framework, (q, k, v), out, lse, extras)

        pointer, problem = framework.pointer, self._problem
        given_out, given_lse = out, lse
        own = out is None and lse is None
        if out is None:
            out = framework.empty(self._out_shape, problem.dtype, q)
        addresses = call.stride_bits
        call.q.data = address = pointer(q)
        addresses |= address
        call.k.data = address = pointer(k)
        addresses |= address
        call.v.data = address = pointer(v)
        addresses |= address
        call.out.data = address = pointer(out)
        addresses |= address
        if self._returns_lse:
            if lse is None:
                lse = framework.empty(self._lse_shape, structs.FLOAT32, q)
            call.lse.data = pointer(lse)
        elif lse is not None:
            raise InvalidArgument(
                "lse: expected none because the plan was made without return_lse, got an array; plan "
                "again with return_lse=True"
            )
        if extras is not _NO_EXTRAS:
            for tensor, array in zip(call.extras, extras):
                if tensor is not None:
                    tensor.data = pointer(array)

        if self._device.kind == "cpu":
            if stream is not None:
                raise InvalidArgument(
                    f"stream: expected None because the plan is for the CPU, got {stream!r}"
                )
            asked = whole(num_threads, "num_threads", bits=32) if num_threads else 0
            call.options.num_threads = self.threads_of(asked)
            status = self._run(self._instances.first.handle, *call.arguments)
        else:
            if num_threads:
                raise InvalidArgument(
                    f"num_threads: expected 0 because the plan is for a GPU, got {num_threads}"
                )
            status = self._launch(framework, call, addresses)
        if status:
            check(status)
        if not own:
            framework.written(given_out, given_lse)
        if own and extras is _NO_EXTRAS and framework.name == "torch":
            self._local.again = Again(framework, self, call, q, k, v)
        return (out, lse) if self._returns_lse else out

    __call__ = run

    @staticmethod
    def threads_of(asked: int) -> int:
        """GNU OpenMP's threads do not survive fork(): a child computes on the calling thread."""
        return 1 if _forked else asked

    def _call(
        self,
        framework: Framework,
        qkv: Sequence[Any],
        out: Any,
        lse: Any,
        extras: Sequence[Any],
    ) -> Call:
        """The prepared call for arrays like these."""
        try:
            calls = self._local.calls
        except AttributeError:
            calls = self._local.calls = {}
        signature = framework.signature
        try:
            key: Any = (signature(qkv[0]), signature(qkv[1]), signature(qkv[2]))
            if out is not None or lse is not None or extras is not _NO_EXTRAS:
                key += tuple(x if x is None else signature(x) for x in (out, lse, *extras))
                key += tuple(x is None or framework.is_writable(x) for x in (out, lse))
            call: Call | None = calls.get(key)
        except (AttributeError, TypeError):  # not arrays of one framework: prepare() says which
            prepare(self._problem, self._device, framework, qkv, out, lse, extras)
            raise
        if call is None:
            call = prepare(self._problem, self._device, framework, qkv, out, lse, extras)
            if len(calls) >= _MAX_CALLS:
                calls.clear()
            calls[key] = call
        return call

    def _launch(self, framework: Any, call: Call, addresses: int) -> int:
        ordinal = self._device.ordinal
        stream = framework.current_stream(ordinal)
        alignment = FULL_ALIGNMENT
        if addresses & (FULL_ALIGNMENT - 1):
            alignment = addresses & -addresses  # the largest power of two that divides all
        if framework.is_current(ordinal):
            return self._start(call, stream, alignment, framework.is_capturing())
        with device_scope(self._device):
            return self._start(call, stream, alignment, framework.is_capturing())

    def _start(self, call: Call, stream: int, alignment: int, recording: bool) -> int:
        instance = self._instances.on(stream, alignment, recording)
        call.options.stream = stream
        return int(self._run(instance.handle, *call.arguments))

    def _run_adopted(self, operands: dict[str, Any], how: dict[str, Any]) -> Any:
        """Objects of other libraries, by DLPack. They are taken and handed back while the stream
        that runs is torch's current one: it waits for theirs, and theirs for it."""
        if self._device != CPU and how["stream"] is not None:
            import_torch(operands["q"], "q")
            with stream_scope(self._device, how["stream"]):
                return self._run_adopted(operands, {**how, "stream": None})
        taken: dict[str, Any] = {
            name: x if x is None else adopt(x, name)[1] for name, x in operands.items()
        }
        tables = tuple(
            adopt(x, f"score_tables[{i}]")[1] for i, x in enumerate(how["score_tables"])
        )
        result = self.run(**taken, **{**how, "score_tables": tables})
        results = result if self._returns_lse else (result,)
        handed = tuple(
            operands[name] if operands[name] is not None else hand_back(made, operands["q"])
            for name, made in zip(("out", "lse"), results)
        )
        return handed if self._returns_lse else handed[0]


@spoken("plan")
def plan(
    mask: Any,
    *,
    batch: int,
    num_heads: int,
    num_heads_kv: int | None = None,
    seq_q: int,
    seq_kv: int | None = None,
    head_dim: int,
    head_dim_v: int | None = None,
    dtype: Any,
    device: Any = "cpu",
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: bool = False,
    bias: bool = False,
    sink: bool = False,
    position_bias: PositionBias | None = None,
    return_lse: bool = False,
    alignment: str = "top_left",
    score_mod: Any = None,
    kernel: str | None = None,
    **others: NoReturn,
) -> Plan:
    """Plans masked attention for these shapes, once; Plan.run() then runs it as often as needed.

    mask: a stof.Mask, its text, None (everything), or a boolean array [seq_q, seq_kv] or [batch|1,
    num_heads|1, seq_q|1, seq_kv], true where visible; one on the plan's GPU is read there, and may
    change afterwards. seq_kv defaults to seq_q, num_heads_kv to num_heads, head_dim_v to head_dim.
    scale: default 1/sqrt(head_dim). softcap > 0: logits = softcap * tanh(logits / softcap). alibi
    adds slope[h] * (k - q); bias a tensor; position_bias T5's buckets; sink a learned logit to the
    denominator; their values are given to run(). attention() says where each comes from. alignment:
    "top_left" puts query 0 at key 0, "bottom_right" the last query at the last key. device: "cpu",
    "cuda", "cuda:N" or torch's. kernel: a GPU kernel as explain() names it, instead of the cost
    model's pick.

    Raises InvalidArgument, Unsupported with a reason, or NotFound where there is no such GPU.
    """
    if others:
        refuse("plan", others)
    problem = Problem.make(**but(locals(), "mask", "device", "kernel", "others"))
    where = device_of(device)
    chosen: Mask | View | None = mask_of(mask)
    stream = 0
    if chosen is None:
        chosen = _boolean_mask(mask, where, problem)
        if isinstance(chosen, View):
            torch = torch_framework()
            stream = torch.current_stream(where.ordinal) if torch is not None else 0
    return Plan(problem, chosen, where, kernel, stream)
