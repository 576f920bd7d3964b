"""One call of a plan, prepared: the structs that the C interface reads, checked once for all arrays
of the same shapes, strides and types."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

from ._native import structs
from .arrays import framework_of, native_tensor
from .framework import Device, Framework, View, check_place
from .errors import InvalidArgument
from .problem import ATTENTION_DTYPES, Problem

#: stof_attention_tensors' members for what Plan.run() calls alibi, bias, sink and position_bias.
OPTIONAL_FIELDS = ("alibi_slopes", "bias", "sink", "position_bias")
OPTIONAL_NAMES = ("alibi", "bias", "sink", "position_bias")
_WIDENED = ("float16", "bfloat16")  # to float32, exactly


class Call:
    """Structs of one thread; the addresses in them change from call to call."""

    __slots__ = (
        "q",
        "k",
        "v",
        "out",
        "lse",
        "extras",
        "tensors",
        "options",
        "arguments",
        "stride_bits",
        "copies",
        "widened",
    )

    q: structs.Tensor
    k: structs.Tensor
    v: structs.Tensor
    out: structs.Tensor
    lse: structs.Tensor
    extras: tuple[structs.Tensor | None, ...]
    tensors: structs.AttentionTensors
    options: structs.RunOptions
    arguments: tuple[Any, Any]
    stride_bits: int  # of q, k, v and out, in bytes, or-ed

    def __init__(self) -> None:
        self.copies: tuple[int, ...] = ()
        self.widened: tuple[int, ...] = ()


def _order_hint(expected: tuple[int, ...], got: tuple[int, ...], name: str) -> str:
    """What to do where the shape is the expected one in another order."""
    if len(got) != len(expected):
        if len(expected) == 4 and len(got) == 3:
            return f"; give it a batch or head dimension: {name}.reshape({list(expected)})"
        return ""
    if len(got) == 4 and (got[0], got[2], got[1], got[3]) == expected:
        return (
            "; this looks like [batch, seq, heads, head_dim]: pass "
            f"{name}.transpose(1, 2) (NumPy: {name}.swapaxes(1, 2)), which copies nothing"
        )
    if len(got) == 3 and (got[1], got[0], got[2]) == expected:
        return (
            "; this looks like [heads, rows, head_dim]: pass "
            f"{name}.transpose(0, 1) (NumPy: {name}.swapaxes(0, 1)), which copies nothing"
        )
    return "; plan again for other shapes"


def _check_one(view: View, name: str, shape: tuple[int, ...], dtype: int, device: Device) -> None:
    check_place(name, view.device, device, "move it there, or plan for its device")
    if view.dtype != dtype:
        raise InvalidArgument(
            f"{name}: expected dtype {structs.DTYPE_NAMES[dtype]}, got {view.dtype_name}; convert it, "
            "or plan for its dtype"
        )
    if view.shape != shape:
        raise InvalidArgument(
            f"{name}: expected shape {list(shape)}, got {list(view.shape)}"
            + _order_hint(shape, view.shape, name)
        )


def _view(framework: Framework, array: Any, name: str) -> View:
    if not framework.is_one(array):
        got = framework_of(array)
        kind = type(array).__name__ if got is None else f"{got.name}'s {type(array).__name__}"
        raise InvalidArgument(
            f"{name}: expected an array of {framework.name} like q, got {kind}; convert it"
        )
    return framework.view(array, name)


def _extra_views(
    problem: Problem, device: Device, framework: Framework, extras: Sequence[Any]
) -> list[View | None]:
    """Checks presence, place and type; the library checks the rest."""
    views: list[View | None] = []
    wanted = (problem.alibi, problem.bias, problem.sink, problem.position_bias is not None)
    for name, array, needed in zip(OPTIONAL_NAMES, extras, wanted):
        if array is None:
            if needed:
                raise InvalidArgument(
                    f"{name}: expected an array because the plan was made with {name}, got none"
                )
            views.append(None)
            continue
        if not needed:
            raise InvalidArgument(
                f"{name}: expected none because the plan was made without {name}, got an array; "
                f"plan again with {name}"
            )
        view = _extra_view(framework, array, name, device)
        if view.dtype_name not in ATTENTION_DTYPES:
            hint = "convert it"
            if name == "bias" and view.dtype == structs.BOOL:
                hint = "a boolean mask (true is visible) goes to mask="
            raise InvalidArgument(
                f"{name}: expected dtype {', '.join(ATTENTION_DTYPES)}, got {view.dtype_name}; {hint}"
            )
        views.append(view)
    tables = extras[len(OPTIONAL_NAMES) :]
    declared = () if problem.score_mod is None else problem.score_mod[1]
    if len(tables) != len(declared):
        raise InvalidArgument(
            f"score_tables: expected {len(declared)} as the plan's score_mod reads "
            f"({', '.join(name for name, _, _ in declared) or 'none'}), got {len(tables)}"
        )
    for (name, dtype, shape), array in zip(declared, tables):
        view = _extra_view(framework, array, f"score_tables: {name}", device)
        if (view.dtype, view.shape) != (dtype, shape):
            raise InvalidArgument(
                f"score_tables: expected {name} as {structs.DTYPE_NAMES[dtype]} {list(shape)}, got "
                f"{view.dtype_name} {list(view.shape)}; plan again for another"
            )
        views.append(view)
    return views


def _extra_view(framework: Framework, array: Any, name: str, device: Device) -> View:
    view = _view(framework, array, name)
    check_place(name, view.device, device)
    return view


def prepare(
    problem: Problem,
    device: Device,
    framework: Framework,
    qkv: Sequence[Any],
    out: Any,
    lse: Any,
    extras: Sequence[Any],
) -> Call:
    """Checks the arrays against the plan. `extras` are alibi, bias, sink and position_bias or
    None, then the score tables.

    A call with `copies` or `widened` is only a note of which of q, k, v must be made contiguous,
    and which extras float32, before it is prepared again.
    """
    call = Call()
    shapes = problem.shapes()
    views = []
    for name, array in zip("qkv", qkv):
        view = _view(framework, array, name)
        _check_one(view, name, shapes[name], problem.dtype, device)
        views.append(view)
    extra_views = _extra_views(problem, device, framework, extras)
    call.copies = tuple(i for i, view in enumerate(views) if not view.last_stride_is_one())
    call.widened = tuple(
        i
        for i, view in enumerate(extra_views[: len(OPTIONAL_NAMES)])
        if view is not None and view.dtype_name in _WIDENED
    )
    if call.copies or call.widened:
        return call

    dtypes = {"out": problem.dtype, "lse": structs.DTYPE_CODES["float32"]}
    for name, array in (("out", out), ("lse", lse)):
        if array is None:
            view = _contiguous_view(shapes[name], dtypes[name], device)
        else:
            view = _view(framework, array, name)
            _check_one(view, name, shapes[name], dtypes[name], device)
            if not framework.is_writable(array):
                raise InvalidArgument(f"{name}: expected memory to write to, got a read-only array")
        views.append(view)
    call.q, call.k, call.v, call.out, call.lse = (native_tensor(view) for view in views)
    call.extras = tuple(None if v is None else native_tensor(v) for v in extra_views)
    tensors = structs.AttentionTensors()
    for name in ("q", "k", "v", "out") + (("lse",) if problem.return_lse else ()):
        setattr(tensors, name, ctypes.pointer(getattr(call, name)))
    for field, extra in zip(OPTIONAL_FIELDS, call.extras):
        if extra is not None:
            setattr(tensors, field, ctypes.pointer(extra))
    tables = [
        ctypes.pointer(table) for table in call.extras[len(OPTIONAL_FIELDS) :] if table is not None
    ]
    if tables:
        tensors.num_score_tables = len(tables)
        tensors.score_tables = (ctypes.POINTER(structs.Tensor) * len(tables))(*tables)
    call.tensors, call.options = tensors, structs.RunOptions()
    call.arguments = (ctypes.byref(tensors), ctypes.byref(call.options))
    call.stride_bits = 0
    for view in views[:4]:
        for extent, stride in zip(view.shape[:-1], view.strides[:-1]):
            if extent > 1:
                call.stride_bits |= stride * _itemsize(view.dtype)
    return call


def _itemsize(dtype: int) -> int:
    return 4 if dtype == structs.FLOAT32 else 2


def _contiguous_view(shape: tuple[int, ...], dtype: int, device: Device) -> View:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return View(0, dtype, shape, tuple(reversed(strides)), device)
