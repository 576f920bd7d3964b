"""Captured tensors: which of them an expression reads, under what names and at what state."""

from __future__ import annotations

import functools
import hashlib
import keyword
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InvalidArgument
from .failures import CannotTrace
from .integers import NARROW, limits, typed
from .symbols import ATOM, KIND_OF_DTYPE, Symbol

if TYPE_CHECKING:
    from .tracing import Trace

# What a table cannot be called: words of the expression language.
_RESERVED = frozenset(
    "b h q k score True False where abs min max pow exp exp2 log log2 sqrt rsqrt tanh sigmoid "
    "sin cos float int inf".split()
)


def state_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for equal contents: which memory a tensor views, and the version of that memory.

    Holds as long as the tensor is referenced. Tensors made in inference mode have no versions;
    their contents count, which costs a copy to the host.
    """
    if tensor.is_inference():
        host = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        content = hashlib.blake2b(host.numpy().tobytes(), digest_size=16).digest()
        return tensor.dtype, tuple(tensor.shape), content
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor._version,
    )


def refuse_in_capture(device: torch.device, what: str = "block_mask") -> None:
    """Reading from a GPU and planning wait for it, which no CUDA graph can record."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise InvalidArgument(
            f"{what}: expected what an earlier call has seen, its tensors unchanged, because a "
            "CUDA graph is being captured, got something new; call flex_attention once before "
            "capturing"
        )


# What a CUDA graph holds the addresses of. Nobody can tell when a graph goes, so these stay as long
# as the process.
_recorded: dict[int, Any] = {}


def keep_if_recorded(entry: Any, device: torch.device) -> Any:
    """The entry of a cache, which a CUDA graph being captured may outlive."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        _recorded[id(entry)] = entry
    return entry


class Memo:
    """Results of reading captured tensors, kept from one trace of a function to the next.

    So that a tensor that has not changed is not read again: on a GPU each read waits for it.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}
        self._used: dict[Any, Any] = {}

    def of(self, what: str, tensor: torch.Tensor, compute: Any) -> Any:
        key = (what, state_of(tensor))
        entry = self._used.get(key) or self._kept.get(key)
        if entry is None:
            refuse_in_capture(tensor.device)
            entry = (tensor, compute(tensor))  # the tensor is held so that its memory stays its own
        self._used[key] = keep_if_recorded(entry, tensor.device)
        return entry[1]

    def copy(self) -> Memo:
        """One for another function that starts with what this one's needed."""
        made = Memo()
        made._kept = dict(self._kept)
        return made

    def forget_unused(self) -> None:
        """What the trace since the last call did not need."""
        self._kept, self._used = self._used, {}


def _names_in(function: Any, names: dict[int, str], depth: int) -> None:
    """Adds id(tensor) -> the name it has in the function's source."""
    if depth == 0 or function is None:
        return
    if isinstance(function, functools.partial):
        for name, value in function.keywords.items():
            if isinstance(value, torch.Tensor):
                names.setdefault(id(value), name)
        return _names_in(function.func, names, depth - 1)
    owner = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        if owner is None:
            owner = function  # an object with __call__
        function = getattr(type(function), "__call__", None)
        code = getattr(function, "__code__", None)
        if code is None:
            return
    found = []
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            pass  # a name that has no value yet
    found += [
        (name, function.__globals__[name]) for name in code.co_names if name in function.__globals__
    ]
    if owner is not None:
        found += [
            (name, owner.__dict__[name])
            for name in code.co_names
            if name in getattr(owner, "__dict__", ())
        ]
    for name, value in found:
        if isinstance(value, torch.Tensor):
            names.setdefault(id(value), name)
        elif isinstance(value, (tuple, list)):
            for item in value:
                if callable(item):
                    _names_in(item, names, depth - 1)
        elif callable(value) and not isinstance(value, type):
            _names_in(value, names, depth - 1)


class Tables:
    """The tensors that one trace reads, by name."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.by_name: dict[str, torch.Tensor] = {}
        self.extents: list[
            tuple[Any, ...]
        ] = []  # (table, dimension, index text, extent) of plain indices
        self._name_of: dict[Any, str] = {}
        self._source_names: dict[int, str] | None = None

    def name(self, tensor: torch.Tensor, source: torch.Tensor | None = None) -> str:
        """`source` is what the user's code holds, where `tensor` is a view of it."""
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
        name = self._name_of.get(key)
        if name is None:
            name = self._name_of[key] = self._new_name(tensor if source is None else source)
            self.by_name[name] = tensor
        return name

    def _new_name(self, tensor: torch.Tensor) -> str:
        if self._source_names is None:
            self._source_names = {}
            _names_in(self.trace.function, self._source_names, depth=6)
        name = self._source_names.get(id(tensor), "table")
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            name = "table"
        if name in _RESERVED:
            name += "_table"
        number = 2
        unique = name
        while unique in self.by_name:
            unique = f"{name}_{number}"
            number += 1
        return unique

    def read(self, tensor: torch.Tensor, indices: list[Symbol], source: Any = None) -> Symbol:
        """tensor[indices], one index per dimension."""
        kind = self.trace.kind_of_table(tensor)
        name = self.name(tensor, source)
        for dimension, index in enumerate(indices):
            self.extents.append((name, dimension, index.text, tensor.shape[dimension]))
        text = f"{name}[{', '.join(index.text for index in indices)}]"
        symbol = self.trace.node(text, ATOM, kind)
        if kind != "int":
            return symbol
        return typed(self.trace, symbol, tensor.dtype, self._bounds(tensor))

    def _bounds(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Of what a table of integers gives. Tables of score modifications may change at any time,
        and a sum of two int64 is torch's whatever they hold."""
        if self.trace.has_floats or tensor.dtype not in NARROW:
            return limits(tensor.dtype)
        return self.trace.memo.of("bounds", tensor, _bounds_of)


def _bounds_of(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    low, high = torch.stack(tensor.detach().aminmax()).tolist()
    return min(low, 0), max(high, 0)  # a read outside of it gives 0


class PartialTable:
    """A captured tensor of which some dimensions have been indexed, as bias[h] of bias[h][q, k]."""

    def __init__(self, trace: Trace, tensor: torch.Tensor, indices: list[Any]) -> None:
        self.trace = trace
        self.tensor = tensor
        self.indices = indices  # per dimension a Symbol, or None while open

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise CannotTrace("a value of an earlier call of the function was kept and used again")

    def __getitem__(self, index: Any) -> Any:
        open_dims = [dim for dim, chosen in enumerate(self.indices) if chosen is None]
        indices = list(self.indices)
        for dim, item in zip(open_dims, expand_index(index, len(open_dims))):
            if isinstance(item, slice):
                if item != slice(None):
                    raise CannotTrace("a slice of a tensor that a symbolic index was applied to")
            else:
                indices[dim] = self.trace.index(item)
        return finish(self.trace, self.tensor, indices)

    def not_indexed(self, use: str) -> Any:
        left = sum(chosen is None for chosen in self.indices)
        raise CannotTrace(
            f"{use} that is a tensor with {len(self.indices)} dimensions of which {left} are not "
            "indexed; symbolic indices must choose one element"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.not_indexed(f"the operand of {name}")


def expand_index(index: Any, rank: int) -> list[Any]:
    """An index as one item per dimension: Ellipsis and what is left out become slice(None)."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(item is None for item in items):
        raise CannotTrace("a new dimension (None) together with a symbolic index")
    holes = [place for place, item in enumerate(items) if item is Ellipsis]
    missing = rank - len(items) + len(holes)
    if len(holes) > 1 or missing < 0:
        raise IndexError(f"too many indices for a tensor of dimension {rank}")
    if holes:
        items[holes[0] : holes[0] + 1] = [slice(None)] * missing
    else:
        items += [slice(None)] * missing
    return items


def finish(trace: Trace, tensor: Any, indices: Any) -> Any:
    if all(chosen is not None for chosen in indices):
        return trace.tables.read(tensor, indices)
    return PartialTable(trace, tensor, indices)


def index_tensor(trace: Trace, tensor: torch.Tensor, index: Any) -> Any:
    """tensor[index] where the index has symbols in it."""
    items = expand_index(index, tensor.dim())
    symbolic = [isinstance(item, Symbol) and item.value is None for item in items]
    # Numbers and slices are applied at once, to the tensor itself.
    static = tuple(
        slice(None) if is_symbol else trace.static_index(item)
        for item, is_symbol in zip(items, symbolic)
    )
    if any(item != slice(None) for item in static):
        tensor = tensor[static]
    indices = [
        trace.index(item) if is_symbol else None
        for item, is_symbol, done in zip(items, symbolic, static)
        if is_symbol or isinstance(done, slice)
    ]
    return finish(trace, tensor, indices)


def as_table_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """In an element type that tables can have, the values unchanged except of float64."""
    if tensor.dtype in NARROW and tensor.dtype != torch.int32:
        return tensor.to(torch.int32)
    if tensor.dtype == torch.float64:
        return tensor.to(torch.float32)
    return tensor


def supported_dtypes() -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in KIND_OF_DTYPE)
