"""Tracing: a mask_mod or score_mod is called once with symbols, which gives its expression."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .conversions import HANDLERS, as_float
from .failures import CannotTrace
from .functions import bitwise_and, bitwise_not, less_equal
from .integers import NARROW, widened
from .symbols import ATOM, KIND_OF_DTYPE, UNARY, Symbol
from .tables import (
    Memo,
    PartialTable,
    Tables,
    index_tensor,
    state_of,
    supported_dtypes,
)

# An expression shares nothing when written out: x = x * x + x, 20 times, has a million terms. Real
# masks stay below a few hundred characters.
_MAX_TEXT = 1 << 16

# Expressions may be 1000 operations deep and have 4096: this many can be neither.
_MAX_OPERATIONS = 900

_NUMBERS = (bool, int, float, numpy.bool_, numpy.integer, numpy.floating)

# The widest span of values for which torch.isin() becomes a table.
_MAX_MEMBER_SPAN = 1 << 24


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a function computes: an expression, and the tensors that it reads by name."""

    text: str
    tables: dict[str, torch.Tensor]
    extents: list[tuple[Any, ...]]  # see Tables
    # Of a score_mod that is -inf for some positions: the others, as the text of a mask.
    visible: str | None = None

    def key(self) -> tuple[Any, ...]:
        """Equal for equal text and table contents."""
        return self.text, tuple((name, state_of(t)) for name, t in self.tables.items())


class Trace:
    """One call of the user's function. `has_floats` is true of score modifications only."""

    def __init__(self, function: Any, device: torch.device, has_floats: bool, memo: Memo) -> None:
        self.function = function
        self.device = device
        self.has_floats = has_floats
        self.memo = memo
        self.tables = Tables(self)
        self._num_operations = 0
        self._constants: list[tuple[torch.Tensor, int]] = []  # made of symbols, and their versions
        self.has_run = False  # the user's function, to its end

    # --- making symbols ---

    def node(self, text: str, binds: int, kind: str, parts: Any = None) -> Symbol:
        if kind == "float" and not self.has_floats:
            raise CannotTrace("floats in a mask, whose expressions have integers and booleans only")
        self._num_operations += 1
        if self._num_operations > _MAX_OPERATIONS:
            raise CannotTrace(f"more than {_MAX_OPERATIONS} operations")
        if len(text) > _MAX_TEXT:
            raise CannotTrace(f"the expression is longer than {_MAX_TEXT} characters")
        return Symbol(self, text, binds, kind, None, parts)

    def constant(self, value: Any, int_dtype: Any = None) -> Symbol:
        """`int_dtype` of an integer that is a tensor's; a number of Python has none."""
        if isinstance(value, bool):
            return Symbol(self, str(value), ATOM, "bool", value)
        if isinstance(value, int):
            if abs(value) >= 2**63:
                raise CannotTrace(f"{value} does not fit into 64 bits")
            binds = ATOM if value >= 0 else UNARY
            return Symbol(self, str(value), binds, "int", value, int_dtype=int_dtype)
        if math.isnan(value):
            raise CannotTrace("the constant NaN")
        with numpy.errstate(over="ignore"):
            rounded = float(numpy.float32(value))
        if math.isinf(rounded) or rounded == 0:  # as torch computes with it
            value = rounded
        return Symbol(self, repr(value), UNARY if repr(value)[0] == "-" else ATOM, "float", value)

    def operands(self, *values: Any) -> tuple[Symbol, ...]:
        return tuple(map(self.operand, values))

    def operand(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            if value.trace is not self:
                raise CannotTrace(
                    "a value of an earlier call of the function was kept and used again"
                )
            if value.is_overwritten and not self.has_run:
                raise CannotTrace(
                    "a value was written in place (+=) and is used under another name as well"
                )
            return value
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        if isinstance(value, torch.Tensor):
            return self.scalar(value)
        if isinstance(value, (numpy.bool_, numpy.integer, numpy.floating)):
            return self.constant(value.item())
        if isinstance(value, PartialTable):
            value.not_indexed("an operand")
        raise CannotTrace(f"a {type(value).__name__} as an operand of a symbolic value")

    def scalar(self, tensor: torch.Tensor) -> Symbol:
        """A captured tensor without dimensions: a constant of a mask; in a score modification a
        table, so that a new value needs no new kernel."""
        if tensor.dim() != 0:
            raise CannotTrace(
                f"a tensor of shape {tuple(tensor.shape)} as an operand of a symbolic value; index "
                "it first, so that one element is left"
            )
        if self.has_floats:
            return self.tables.read(tensor.reshape(1), [self.constant(0)], tensor)
        dtype = tensor.dtype if tensor.dtype in NARROW else torch.int64
        return self.constant(self.memo.of("value", tensor, torch.Tensor.item), dtype)

    def kind_of_table(self, tensor: torch.Tensor) -> str:
        kind = KIND_OF_DTYPE.get(tensor.dtype)
        if tensor.dtype == torch.float64 and self.has_floats:
            kind = "float"
        if kind is None:
            raise CannotTrace(
                f"a captured tensor of {tensor.dtype}; supported are {supported_dtypes()}"
            )
        if kind == "float" and not self.has_floats:
            raise CannotTrace(
                f"a captured tensor of {tensor.dtype} in a mask, whose expressions have integers "
                "and booleans only; compare it once, before the mask, and capture the result"
            )
        return kind

    def membership(self, x: Symbol, members: torch.Tensor) -> Symbol:
        """Whether an integer is among the elements of a captured tensor."""
        if members.numel() == 0:
            return self.constant(False)

        def listed(tensor: Any) -> Any:
            values = tensor.detach().reshape(-1).to(torch.int64)
            low, high = (int(bound) for bound in values.aminmax())
            if high - low >= _MAX_MEMBER_SPAN:
                raise CannotTrace(
                    f"torch.isin of values from {low} to {high}: they span over {_MAX_MEMBER_SPAN}"
                )
            table = torch.zeros(high - low + 1, dtype=torch.bool, device=values.device)
            table[values - low] = True
            return low, table

        low, table = self.memo.of("members", members, listed)
        x = widened(self, x)
        place = x - low if low else x
        found = self.node(f"{self.tables.name(table)}[{place.text}]", ATOM, "bool")
        return bitwise_and(
            self, less_equal(self, low, x), found
        )  # below, it would count from the end

    # --- indexing ---

    def index(self, item: Any) -> Symbol:
        item = self.operand(item)
        if item.kind != "int":
            raise CannotTrace(f"a tensor was indexed with a {item.kind}; indices are integers")
        return item

    def static_index(self, item: Any) -> Any:
        """An item of an index that can be applied to the tensor now."""
        if isinstance(item, Symbol):
            return self.index(item).value
        if isinstance(item, slice):
            if any(isinstance(x, Symbol) for x in (item.start, item.stop, item.step)):
                raise CannotTrace("a slice with a symbolic bound")
            return item
        if isinstance(item, torch.Tensor) and item.dim() == 0 and item.dtype != torch.bool:
            return self.memo.of("value", item, torch.Tensor.item)
        if isinstance(item, (int, numpy.integer)) and not isinstance(item, bool):
            return item
        raise CannotTrace(f"an index of type {type(item).__name__} together with a symbolic index")

    # --- calls ---

    def call_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A method of a Symbol; args[0] or args[1] is it."""
        handler = HANDLERS.get(f"Tensor.{name}") or HANDLERS.get(name)
        if handler is None:
            raise CannotTrace(f"Tensor.{name}() has no expression")
        return handler(self, *args, **kwargs)

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A torch function or tensor method with a symbol among its arguments."""
        if func is torch.Tensor.__getitem__:
            return index_tensor(self, *args)
        full_name = getattr(func, "__name__", str(func))
        name = full_name.strip("_")
        if func is torch.Tensor.where:
            name = "Tensor.where"
        handler = HANDLERS.get(name)
        in_place = _is_in_place(full_name)
        if in_place and (not args or _has_symbol(args[0])):
            raise CannotTrace(f"torch.{full_name}() writes a symbolic value in place; use {name}()")
        if _only_constants(args, kwargs, handler is None):
            return func(*map(self.to_tensor, args), **kwargs)
        if in_place:
            raise CannotTrace(
                f"torch.{full_name}() writes a symbolic value into a tensor; use {name}()"
            )
        if handler is None:
            raise CannotTrace(f"torch.{name}() has no expression")
        return handler(self, *args, **kwargs)

    def to_tensor(self, value: Any) -> Any:
        if isinstance(value, Symbol):
            with torch.inference_mode(False):  # whose tensors have no versions
                made = torch.tensor(value.value, dtype=value.dtype, device=self.device)
            self._constants.append((made, made._version))
            return made
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.to_tensor, value))
        return value

    def check_constants(self) -> None:
        """A write to what stands for a constant, through a view too, would be lost."""
        if any(tensor._version != version for tensor, version in self._constants):
            raise CannotTrace("a constant tensor is written in place")

    def written(self, old: Symbol, new: Symbol) -> Symbol:
        """What `old += ...` makes of it. In torch all that view `old` see the write; here they keep
        its expression, so that they must not be used again."""
        if new.dtype != old.dtype:
            raise CannotTrace(f"{new.dtype} is written in place to {old.dtype}")
        old.is_overwritten = True
        return new.copy()  # handlers may have returned an operand itself, as of x &= True


def _is_in_place(name: str) -> bool:
    """abs_, but not __abs__."""
    return name.endswith("_") and not name.endswith("__")


def _has_symbol(value: Any) -> bool:
    if isinstance(value, (Symbol, PartialTable)):
        return True
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    return isinstance(value, (tuple, list)) and any(map(_has_symbol, value))


def _only_constants(args: Any, kwargs: Any, no_handler: bool) -> bool:
    """Whether a call is torch's own after all: of vectors, with constants of this trace."""
    flat = [x for a in args for x in (a if isinstance(a, (tuple, list)) else (a,))]
    if any(map(_has_symbol, kwargs.values())):
        return False
    if any(isinstance(x, PartialTable) or isinstance(x, Symbol) and x.value is None for x in flat):
        return False
    return no_handler or any(isinstance(x, torch.Tensor) and x.dim() > 0 for x in flat)


def _makes_constant(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call without symbols makes a tensor of one number, such as torch.tensor(3)."""
    if func is torch.tensor or func is torch.scalar_tensor:
        return bool(args) and isinstance(args[0], (bool, int, float))
    if func is torch.full or func is torch.zeros or func is torch.ones:
        return bool(args) and isinstance(args[0], (tuple, list)) and len(args[0]) == 0
    return False


class _NoRandomNumbers(TorchDispatchMode):
    """Refuses operations that draw random numbers, without symbols too: one would serve all
    pairs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            name = func.overloadpacket.__name__.strip("_")
            raise CannotTrace(f"torch.{name}() has no expression: it is random")
        return func(*args, **(kwargs or {}))


class _Mode(TorchFunctionMode):
    """Brings torch's functions and tensors' methods to the trace where symbols are involved."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(map(_has_symbol, args)) or any(map(_has_symbol, kwargs.values())):
            return self.trace.call(func, args, kwargs)
        if _makes_constant(func, args):
            return self.trace.call(func, args, kwargs)
        return func(*args, **kwargs)


def _run(trace: Trace, arguments: tuple[Symbol, ...]) -> Symbol:
    try:
        with _NoRandomNumbers(), _Mode(trace):
            result = trace.function(*arguments)
        if isinstance(result, torch.Tensor) and result.dim() != 0:
            raise CannotTrace(
                f"the result has shape {tuple(result.shape)}; expected one element, ()"
            )
        if not isinstance(result, (Symbol, PartialTable, *_NUMBERS, torch.Tensor)):
            kind = "real number" if trace.has_floats else "boolean"
            raise CannotTrace(f"the result is a {type(result).__name__}; expected one {kind}")
        trace.check_constants()
        result = trace.operand(result)
        trace.has_run = True
        return result
    finally:
        trace.memo.forget_unused()


def _variables(trace: Trace) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(trace, name, ATOM, "int", int_dtype=torch.int64, bounds=(0, 2**31 - 1))
        for name in "bhqk"
    )


def trace_mask(function: Any, device: torch.device, memo: Memo) -> Traced:
    """The boolean expression of mask_mod(b, h, q_idx, kv_idx). Raises what stopped the trace."""
    trace = Trace(function, device, False, memo)
    result = _run(trace, _variables(trace))
    if result.kind != "bool":
        raise CannotTrace(f"the result is of type {result.dtype}; a mask_mod returns a boolean")
    return Traced(result.text, trace.tables.by_name, trace.tables.extents)


def trace_score(function: Any, device: torch.device, memo: Memo) -> Traced:
    """The float expression of score_mod(score, b, h, q_idx, kv_idx), likewise."""
    trace = Trace(function, device, True, memo)
    score = Symbol(trace, "score", ATOM, "float")
    result, visible = split_mask(trace, as_float(trace, _run(trace, (score, *_variables(trace)))))
    return Traced(result.text, trace.tables.by_name, trace.tables.extents, visible)


# Tables, scores, functions and literals of floats, and division.
_NOT_OF_MASKS = re.compile(
    r"[a-z_]\w*\[|\b(score|float|inf|pow|exp2?|log2?|r?sqrt|tanh|sigmoid|sin|cos)\b|"
    r"\d\.|\de|(?<!/)/(?!/)",
    re.IGNORECASE,
)


def split_mask(trace: Trace, result: Symbol) -> tuple[Symbol, str | None]:
    """where(visible, score, -inf) as its score and its mask, so that hidden tiles are skipped.

    Only of conditions on positions alone: tables of score modifications are read at every run, and
    a mask is planned before.
    """
    visible = None
    while result.parts is not None:
        condition, x, y = result.parts
        if x.value == -math.inf:
            condition, x, y = bitwise_not(trace, condition), y, x
        if y.value != -math.inf or _NOT_OF_MASKS.search(condition.text):
            break
        visible = condition if visible is None else bitwise_and(trace, visible, condition)
        result = x
    return result, None if visible is None else visible.text


def count_positional(function: Any) -> int | None:
    """How many arguments a function needs: 4 of a mask_mod, 5 of a score_mod. None of *args."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(
        parameter.kind in kinds and parameter.default is inspect.Parameter.empty
        for parameter in parameters
    )
