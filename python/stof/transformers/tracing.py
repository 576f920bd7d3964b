"""transformers' mask functions as expressions.

Outside of torch.compile the tracer of stof.compat.flex reads any of them. torch.compile has to
trace the tracer itself, where nothing may ask a tensor for its memory or its value; Term is
small enough for that and covers what transformers' own functions do.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.overrides import TorchFunctionMode
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from ..compat.flex.failures import CannotTrace, reason, source_place
from ..compat.flex.tables import Memo
from ..compat.flex.tracing import trace_mask
from ..errors import Unsupported


def _known(function: Callable) -> str | None:
    """What needs no tracing: most masks of most models."""
    if function is causal_mask_function:
        return "k <= q"
    if function is bidirectional_mask_function:
        return "True"  # q >= 0, which all positions are
    return None


def traced(function: Callable) -> tuple[str, dict[str, torch.Tensor]]:
    """The expression of mask_function(b, h, q, k), and the tensors it reads by name."""
    known = _known(function)
    if known is not None:
        return known, {}

    def at_head_0(b: Any, h: Any, q: Any, k: Any) -> Any:
        return function(b, 0, q, k)  # transformers asks for all heads at once, as head 0

    try:
        found = trace_mask(at_head_0, torch.device("cpu"), Memo())
    except Exception as error:  # whatever stops a user's function
        raise Unsupported(
            "mask_function: expected one with an expression, got "
            f"{source_place(error, function)}: {reason(error)}; write it with comparisons, "
            "integer arithmetic, & | ~, torch.where and indexing into tensors"
        ) from error
    return found.text, found.tables


class _Tables:
    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []


def _text(value: Any) -> str:
    if isinstance(value, Term):
        return value.text
    if isinstance(value, (bool, int)):
        return f"{value}"
    raise CannotTrace("an operand that is neither a position nor a number")


class Term:
    """An expression in the making. The text has parentheses around every operation."""

    def __init__(self, tables: _Tables, text: str) -> None:
        self.tables = tables
        self.text = text

    def _join(self, sign: str, other: Any) -> "Term":
        return Term(self.tables, "(" + self.text + " " + sign + " " + _text(other) + ")")

    def __add__(self, other: Any) -> "Term":
        return self._join("+", other)

    def __sub__(self, other: Any) -> "Term":
        return self._join("-", other)

    def __mul__(self, other: Any) -> "Term":
        return self._join("*", other)

    def __floordiv__(self, other: Any) -> "Term":
        return self._join("//", other)

    def __mod__(self, other: Any) -> "Term":
        return self._join("%", other)

    def __and__(self, other: Any) -> "Term":
        return self._join("&", other)

    def __or__(self, other: Any) -> "Term":
        return self._join("|", other)

    def __eq__(self, other: Any) -> "Term":  # type: ignore[override]
        return self._join("==", other)

    def __ne__(self, other: Any) -> "Term":  # type: ignore[override]
        return self._join("!=", other)

    def __lt__(self, other: Any) -> "Term":
        return self._join("<", other)

    def __le__(self, other: Any) -> "Term":
        return self._join("<=", other)

    def __gt__(self, other: Any) -> "Term":
        return self._join(">", other)

    def __ge__(self, other: Any) -> "Term":
        return self._join(">=", other)

    def __invert__(self) -> "Term":
        return Term(self.tables, "(~" + self.text + ")")

    def __abs__(self) -> "Term":
        return Term(self.tables, "abs(" + self.text + ")")

    def abs(self) -> "Term":
        return self.__abs__()

    # and_masks() and or_masks() start from these.
    def new_ones(self, shape: Any, dtype: Any = None) -> "Term":
        return Term(self.tables, "True")

    def new_zeros(self, shape: Any, dtype: Any = None) -> "Term":
        return Term(self.tables, "False")

    def to(self, device: Any) -> "Term":
        return self

    @property
    def device(self) -> None:
        return None


class _Indexing(TorchFunctionMode):
    """Tensors indexed with terms."""

    def __init__(self, tables: _Tables) -> None:
        super().__init__()
        self.tables = tables

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            tensor, index = args
            items = index if isinstance(index, tuple) else (index,)
            if any(isinstance(item, Term) for item in items):
                return self.read(tensor, items)
        return func(*args, **(kwargs or {}))

    def read(self, tensor: torch.Tensor, items: Any) -> Term:
        if len(items) != tensor.dim():
            raise CannotTrace("a tensor indexed with fewer positions than it has dimensions")
        number = None
        for i, known in enumerate(self.tables.tensors):
            if known is tensor:
                number = i
        if number is None:
            number = len(self.tables.tensors)
            self.tables.tensors.append(tensor)
        return Term(
            self.tables,
            "table" + str(number) + "[" + ", ".join([_text(item) for item in items]) + "]",
        )


def traced_in_graph(function: Callable) -> tuple[str, list[torch.Tensor]]:
    """The same while torch.compile traces; table i is called "table" + str(i)."""
    known = _known(function)
    if known is not None:
        return known, []
    tables = _Tables()
    b, q, k = Term(tables, "b"), Term(tables, "q"), Term(tables, "k")
    with _Indexing(tables):
        result = function(b, 0, q, k)
    if not isinstance(result, Term):
        raise CannotTrace("a mask function whose result does not depend on positions")
    return result.text, tables.tensors
