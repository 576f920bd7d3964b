"""Score modifications: the caller's own function of each score, in the expression language."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

from ._native import structs
from .arrays import dtype_code, shape_of, torch_compiles
from .errors import InvalidArgument

#: What tables may hold.
TABLE_DTYPES = ("bool", "int32", "int64", "float16", "bfloat16", "float32")

#: Name, element type (a constant of structs) and shape of each table.
Declaration = tuple[str, tuple[tuple[str, int, tuple[int, ...]], ...]]


# Declarations that the library has read; their tables are not kept.
_checked: set[Declaration] = set()
_MAX_CHECKED = 1024


def _check(score_mod: ScoreMod) -> None:
    """That the library can read it, by a plan of one pair."""
    if score_mod.declaration in _checked:
        return
    from .planning import plan

    try:
        plan(
            "all",
            batch=1,
            num_heads=1,
            seq_q=1,
            head_dim=16,
            dtype="float32",
            score_mod=score_mod,
        )
    except InvalidArgument as error:
        text = str(error)
        while text.startswith("score_mod: score_mod"):
            text = text[len("score_mod: ") :]
        raise InvalidArgument(text) from None
    if len(_checked) >= _MAX_CHECKED:
        _checked.clear()
    _checked.add(score_mod.declaration)


@dataclass(frozen=True, eq=False)
class ScoreMod:
    """new score = text(score, b, h, q, k), such as ``ScoreMod("score + rel[q - k + 100]", {"rel":
    rel})``.

    Applied in float32 after scale, softcap, ALiBi and biases, and before the mask; -inf hides the
    key. docs/masks.md defines the language. tables: arrays by name, on the device of q, which the
    text reads as name[i, j, ...]; they are read in every call, so their values may change. Equal,
    with equal hashes, where text and the tables' names, types and shapes are: those belong to a
    plan, values do not.
    """

    text: str
    tables: Mapping[str, Any] = field(default_factory=dict)
    declaration: Declaration = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidArgument(
                f"score_mod: expected its text as a string, got {type(self.text).__name__}"
            )
        if not isinstance(self.tables, Mapping):
            raise InvalidArgument(
                f"score_mod: expected tables as a dict of arrays by name, got {type(self.tables).__name__}"
            )
        declared = []
        for name, array in self.tables.items():
            extents = shape_of(array)
            if not hasattr(array, "dtype") or extents is None:
                raise InvalidArgument(
                    f"score_mod: expected an array for table {name!r}, got {type(array).__name__}"
                )
            try:
                code = dtype_code(array.dtype)
                known = structs.DTYPE_NAMES[code] in TABLE_DTYPES
            except InvalidArgument:  # it speaks of a dtype= argument
                known = False
            if not known:
                raise InvalidArgument(
                    f"score_mod: expected table {name!r} of {', '.join(TABLE_DTYPES)}, got "
                    f"{array.dtype}; convert it"
                )
            declared.append((name, code, tuple(int(extent) for extent in extents)))
        object.__setattr__(self, "declaration", (self.text, tuple(declared)))
        if not torch_compiles():  # there it is checked when the graph runs
            _check(self)

    @staticmethod
    def of(value: Any) -> ScoreMod | None:
        """The argument score_mod of plan() and attention(): one of these, its text, or None."""
        if value is None or isinstance(value, ScoreMod):
            return value
        if isinstance(value, str):
            return ScoreMod(value)
        raise InvalidArgument(
            "score_mod: expected a stof.ScoreMod, or text without tables, got "
            f"{type(value).__name__}; stof.compat.flex.flex_attention takes Python functions"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreMod):
            return NotImplemented
        return self.declaration == other.declaration

    def __hash__(self) -> int:
        return hash(self.declaration)
