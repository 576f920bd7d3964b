"""Symbol: what a mask_mod or score_mod is called with in place of tensors.

Every operation on it gives another Symbol that holds the text of its expression (docs/masks.md).
Control flow that needs a value raises CannotTrace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .failures import CannotTrace

if TYPE_CHECKING:
    from .tracing import Trace

# How tightly an operator binds, as in Python and in the expression language.
ATOM, UNARY, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARISON = range(9, 0, -1)

# What an element type is to an expression: integers have 64 bits, floats 32.
KIND_OF_DTYPE = {
    torch.bool: "bool",
    torch.uint8: "int",
    torch.int8: "int",
    torch.int16: "int",
    torch.int32: "int",
    torch.int64: "int",
    torch.float16: "float",
    torch.bfloat16: "float",
    torch.float32: "float",
}
DTYPE_OF_KIND = {"bool": torch.bool, "int": torch.int64, "float": torch.float32}


class Symbol:
    """An expression of the indices (and of `score`), standing for a tensor without dimensions."""

    __slots__ = (
        "trace", "text", "binds", "kind", "value", "parts", "int_dtype", "bounds", "is_overwritten",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        text: str,
        binds: int,
        kind: str,
        value: Any = None,
        parts: Any = None,
        int_dtype: Any = None,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        self.trace = trace
        self.text = text
        self.binds = binds  # of the outermost operator: ATOM ... COMPARISON
        self.kind = kind  # "bool", "int" or "float"
        self.value = value  # of a constant, else None
        self.parts = parts  # of a where(): its three operands, else None
        self.int_dtype = int_dtype  # of an integer: torch's type, None of a number of Python
        self.bounds = bounds  # of an integer: its least and largest value; None where unknown
        self.is_overwritten = False  # by +=, see Trace.written()

    def copy(self) -> Symbol:
        """One that keeps its expression whatever is written to this one."""
        return Symbol(
            self.trace, self.text, self.binds, self.kind, self.value, self.parts, self.int_dtype,
            self.bounds,
        )  # fmt: skip

    def inside(self, binds: int) -> str:
        """The text as an operand of something that binds that tightly."""
        return self.text if self.binds >= binds else f"({self.text})"

    # What code asks of a tensor before computing with it.
    shape = torch.Size([])
    ndim = 0
    requires_grad = False

    @property
    def dtype(self) -> Any:
        return self.int_dtype or DTYPE_OF_KIND[self.kind]

    @property
    def is_number(self) -> bool:
        """Whether it is a constant without a type of its own, which takes that of the other."""
        return self.value is not None and self.int_dtype is None

    @property
    def device(self) -> Any:
        return self.trace.device

    @property
    def is_cuda(self) -> Any:
        return self.trace.device.type == "cuda"

    def dim(self) -> Any:
        return 0

    def size(self, *dims: Any) -> Any:
        return self.shape if not dims else self.shape[dims[0]]

    def numel(self) -> Any:
        return 1

    def is_floating_point(self) -> Any:
        return self.kind == "float"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Reached outside of the trace's mode only: a Symbol that outlived its call."""
        raise CannotTrace("a value of an earlier call of the function was kept and used again")

    # Values that Python needs at once.
    def __bool__(self) -> Any:
        raise CannotTrace(
            "the truth of a symbolic value was asked for (if, while, and, or, not, a chained "
            "comparison or bool()); use &, |, ~ and torch.where"
        )

    def __int__(self) -> Any:
        raise CannotTrace("int() of a symbolic value; leave it a tensor, or use .to(torch.int64)")

    def __float__(self) -> Any:
        raise CannotTrace("float() of a symbolic value; leave it a tensor, or use .float()")

    def __index__(self) -> Any:
        raise CannotTrace(
            "a symbolic value was used as an index or count of something that is not a torch "
            "tensor; make lists and arrays torch tensors first"
        )

    def __len__(self) -> Any:
        raise CannotTrace("len() of a symbolic value, which has no dimensions")

    def __iter__(self) -> Any:
        raise CannotTrace("iteration over a symbolic value, which has no dimensions")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise CannotTrace(
            "a symbolic value was turned into a NumPy array; write torch's function in NumPy's place, "
            "and make arrays that it indexes tensors by torch.as_tensor(array)"
        )

    def __getitem__(self, index: Any) -> Any:
        raise CannotTrace("a symbolic value was indexed, which has no dimensions")

    def __setitem__(self, index: Any, value: Any) -> Any:
        raise CannotTrace("a symbolic value was assigned to; use torch.where")

    __hash__ = object.__hash__

    def __repr__(self) -> Any:
        return f"Symbol({self.text})"

    def __getattr__(self, name: str) -> Any:
        """Methods of tensors."""
        if name.startswith("__"):
            raise AttributeError(name)
        trace = self.trace

        def method(*args: Any, **kwargs: Any) -> Any:
            return trace.call_method(name, self, *args, **kwargs)

        return method


def _binary(name: str) -> Any:
    def operator(self, other: Any) -> Any:
        return self.trace.call_method(name, self, other)

    def reflected(self, other: Any) -> Any:
        return self.trace.call_method(name, other, self)

    def in_place(self, other: Any) -> Any:
        return self.trace.written(self, self.trace.call_method(name, self, other))

    return operator, reflected, in_place


for _dunder, _name in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}.items():
    _operator, _reflected, _in_place = _binary(_name)
    setattr(Symbol, f"__{_dunder}__", _operator)
    setattr(Symbol, f"__r{_dunder}__", _reflected)
    setattr(Symbol, f"__i{_dunder}__", _in_place)

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Symbol, f"__{_name}__", _binary(_name)[0])

for _dunder, _name in {
    "neg": "neg",
    "pos": "positive",
    "abs": "abs",
    "invert": "bitwise_not",
}.items():

    def _unary(self, name: Any = _name) -> Any:
        return self.trace.call_method(name, self)

    setattr(Symbol, f"__{_dunder}__", _unary)
