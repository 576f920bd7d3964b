"""The class Mask. The functions that make masks are in masks.py."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from . import identity
from ._native import bytes_of, check, encoded, json_of, library, structs, text_of
from .arrays import adopt, native_tensor
from .errors import InvalidArgument, OutOfMemory, Unsupported
from .interrupts import interruptible
from .values import choice, extent, path_of, whole

_FINGERPRINT_BYTES = 33  # 32 hexadecimal digits and a NUL


class Mask:
    """An immutable mask. ``a & b``, ``a | b`` and ``~a`` make new ones.

    Equal, with equal hashes, where the canonical forms are; pickled by its JSON. Threads may share
    it. Made by the functions of stof.masks.
    """

    __slots__ = ("_handle", "_fingerprint", "_hash", "_release", "_name", "__weakref__")

    def __init__(self, *given: object, **named: object) -> None:
        raise InvalidArgument(
            "stof.Mask: masks are made by the functions of stof.masks, such as masks.causal(), and of "
            'text by masks.parse("causal & window(256, 0)"); calls that take a mask take its text, too'
        )

    @classmethod
    def _of(cls, handle: int) -> Mask:
        """Takes the handle over."""
        mask = cls.__new__(cls)
        mask._own(handle)
        return mask

    def _own(self, handle: int) -> None:
        self._handle = handle
        self._release = library().stof_mask_release
        self._fingerprint: str | None = None
        self._hash: int | None = None
        self._name = identity.named(self)  # what compiled code holds in its place

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self._release(handle)

    # --- algebra ---------------------------------------------------------------------------------

    __array_ufunc__ = None  # an array & a mask is one operation, not one for each element

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            _refuse_operand("&", other)
            return NotImplemented
        return made(library().stof_mask_and, self._handle, other._handle)

    def __or__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            _refuse_operand("|", other)
            return NotImplemented
        return made(library().stof_mask_or, self._handle, other._handle)

    __rand__, __ror__ = __and__, __or__  # of masks & and | do not depend on the order

    def __invert__(self) -> Mask:
        return made(library().stof_mask_not, self._handle)

    def __bool__(self) -> bool:
        raise InvalidArgument(
            "mask: expected & | ~ to join masks, got a truth test; `and`, `or` and `not` do not work "
            "on masks"
        )

    def bind(
        self,
        seq_q: int,
        seq_kv: int | None = None,
        *,
        batch: int = 1,
        num_heads: int = 1,
        alignment: str = "top_left",
    ) -> Mask:
        """The mask resolved for these lengths, every array checked against them. Planning does it
        by itself."""
        shape = _score_shape(seq_q, seq_kv, batch, num_heads, alignment)
        return made(library().stof_mask_bind, self._handle, ctypes.byref(shape))

    # --- what it sees ----------------------------------------------------------------------------

    def visible(self, q: int, k: int, *, batch: int = 0, head: int = 0) -> bool:
        """Whether query q sees key k. A mask with parts that depend on the lengths must be
        bound."""
        result = ctypes.c_int32()
        asked = (whole(batch, "batch"), whole(head, "head"), whole(q, "q"), whole(k, "k"))
        check(library().stof_mask_visible(self._handle, *asked, ctypes.byref(result)))
        return bool(result.value)

    def keys(self, q: int, seq_kv: int, *, batch: int = 0, head: int = 0) -> list[int]:
        """The keys below seq_kv that query q sees, ascending."""
        function = library().stof_mask_visible_keys
        count = ctypes.c_int64()
        asked = (
            self._handle,
            whole(batch, "batch"),
            whole(head, "head"),
            whole(q, "q"),
            whole(seq_kv, "seq_kv"),
        )
        check(function(*asked, 0, None, ctypes.byref(count)))
        found = (ctypes.c_int64 * count.value)()
        check(function(*asked, count.value, found, ctypes.byref(count)))
        return list(found)

    def to_dense(
        self,
        seq_q: int,
        seq_kv: int | None = None,
        *,
        batch: int = 1,
        num_heads: int = 1,
        alignment: str = "top_left",
    ) -> Any:
        """A NumPy array of booleans [batch, num_heads, seq_q, seq_kv], true where visible.

        Raises InvalidArgument for lengths that the mask's arrays do not fit, OutOfMemory for more
        booleans than there is memory.
        """
        try:
            import numpy
        except ImportError:
            raise Unsupported(
                "to_dense: expected NumPy, whose array it returns, got none; pip install numpy, or ask "
                "for keys() or visible()"
            ) from None

        shape = _score_shape(seq_q, seq_kv, batch, num_heads, alignment)
        extents = tuple(
            extent(getattr(shape, name), name, 0)
            for name in ("batch", "num_heads", "seq_q", "seq_kv")
        )
        try:
            dense = numpy.zeros(extents, numpy.bool_)
        except (MemoryError, ValueError):  # more than there is, or than NumPy can say
            raise OutOfMemory(
                f"to_dense: expected booleans {list(extents)} that fit in memory, got no memory for them; "
                "ask for fewer"
            ) from None
        view = native_tensor(adopt(dense, "visible")[0].view(dense, "visible"))
        check(library().stof_mask_to_dense(self._handle, ctypes.byref(shape), ctypes.byref(view)))
        return dense

    def stats(
        self,
        seq_q: int,
        seq_kv: int | None = None,
        *,
        batch: int = 1,
        num_heads: int = 1,
        alignment: str = "top_left",
    ) -> dict[str, Any]:
        """Visible pairs, density (0 to 1), rows that see nothing, and tiles full, partial and empty
        at 8 to 128 tokens. Raises InvalidArgument for lengths that the mask's arrays do not fit."""
        shape = _score_shape(seq_q, seq_kv, batch, num_heads, alignment)
        function = library().stof_mask_stats
        stats: dict[str, Any] = interruptible(
            lambda: json_of(function, self._handle, ctypes.byref(shape))
        )
        return stats

    def draw(
        self,
        seq_q: int = 64,
        seq_kv: int | None = None,
        *,
        batch: int = 0,
        head: int = 0,
        alignment: str = "top_left",
        max_cells: int = 64,
    ) -> str:
        """What one batch entry and head see, the first unless they are given, also of masks that
        tell them apart.

        A line per row of cells: '#' all visible, '+' some, '.' none. A cell is one pair, or a
        square of them where a side is longer than max_cells. Raises InvalidArgument for lengths
        that the mask's arrays do not fit, and for a batch entry, head or max_cells that cannot
        be."""
        shape = self._shape_with(seq_q, seq_kv, batch, head, alignment)
        options = structs.DrawOptions(
            batch=whole(batch, "batch"),
            head=whole(head, "head"),
            max_cells=whole(max_cells, "max_cells"),
        )
        return text_of(
            library().stof_mask_draw_text, self._handle, ctypes.byref(shape), ctypes.byref(options)
        )

    def png(
        self,
        seq_q: int = 256,
        seq_kv: int | None = None,
        *,
        batch: int = 0,
        head: int = 0,
        alignment: str = "top_left",
        kind: str = "pairs",
        max_pixels: int = 448,
        title: str | None = None,
    ) -> bytes:
        """The bytes of a PNG file, queries downwards, keys to the right.

        kind "pairs" is dark where visible; "tiles" shows 64x64 tiles as full, partial and empty.
        The longer side has at most max_pixels (64 to 4096). title: ASCII; other characters become
        "?".

        Raises InvalidArgument naming the argument, or for lengths that the mask's arrays do not
        fit.
        """
        drawn = structs.DRAW_KINDS[choice(kind, "kind", structs.DRAW_KINDS)]
        if title is not None:
            encoded(title, "title")
        shape = self._shape_with(seq_q, seq_kv, batch, head, alignment)
        options = structs.PngOptions(
            kind=drawn,
            batch=whole(batch, "batch"),
            head=whole(head, "head"),
            max_pixels=whole(max_pixels, "max_pixels"),
            title=None if title is None else title.encode("ascii", "replace"),
        )
        return bytes_of(
            library().stof_mask_draw_png, self._handle, ctypes.byref(shape), ctypes.byref(options)
        )

    # --- text ------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """Canonical text, read back by parse()."""
        return text_of(library().stof_mask_to_text, self._handle)

    def to_json(self) -> str:
        """Canonical JSON, read back by from_json()."""
        return text_of(library().stof_mask_to_json, self._handle)

    def save(self, path: Any) -> None:
        """Writes its JSON to a file, which stof.masks.load() reads."""
        with open(path_of(path, "path"), "w", encoding="utf-8") as file:
            file.write(self.to_json() + "\n")

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, equal for equal canonical forms in every process."""
        known = self._fingerprint
        if known is None:
            digits = ctypes.create_string_buffer(_FINGERPRINT_BYTES)
            check(library().stof_mask_fingerprint(self._handle, digits))
            known = self._fingerprint = digits.value.decode()
        return known

    def __str__(self) -> str:
        return text_of(library().stof_mask_describe, self._handle)

    def __repr__(self) -> str:
        return f"<stof.Mask {self}>"

    def _repr_png_(self) -> bytes | None:
        shape = self._natural_shape()
        return None if shape is None else self.png(*shape)

    def _repr_html_(self) -> str:
        import base64
        import html

        text = f"<code>{html.escape(str(self))}</code>"
        shape = self._natural_shape()
        if shape is None:
            return text
        picture = base64.b64encode(self.png(*shape)).decode()
        return (
            f'{text}<br><img alt="{html.escape(str(self))}" src="data:image/png;base64,{picture}">'
        )

    def _shape_with(
        self, seq_q: int, seq_kv: int | None, batch: int, head: int, alignment: str
    ) -> structs.ScoreShape:
        """A shape that has that batch entry and head, and as many as the mask's arrays have."""
        entries, heads = _extents(json.loads(self.to_json()))
        batch, head = whole(batch, "batch"), whole(head, "head")
        return _score_shape(seq_q, seq_kv, max(entries, batch + 1), max(heads, head + 1), alignment)

    def _natural_shape(self) -> tuple[int, int] | None:
        """Lengths to draw it at: those it is bound to or its array has, else 256; None where these
        do not fit some array in it."""
        described = json.loads(self.to_json())
        lengths = (256, 256)
        if described["op"] == "bound":
            lengths = (described["seq_q"], described["seq_kv"])
        elif described["op"] == "dense":
            lengths = (described["shape"][-2], described["shape"][-1])
        elif described["op"] == "blocks":
            rows = [row for head in described["heads"] for row in head]
            columns = 1 + max((column for row in rows for column in row), default=0)
            lengths = (
                sum(described["row_sizes"]) or described["block_q"] * len(described["heads"][0]),
                sum(described["col_sizes"]) or described["block_kv"] * columns,
            )
        entries, heads = _extents(described)
        try:
            self.bind(*lengths, batch=entries, num_heads=heads)
        except InvalidArgument:
            return None
        return lengths

    # --- identity --------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mask):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            known = self._hash = hash(self.fingerprint)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return from_json, (self.to_json(),)

    def __copy__(self) -> Mask:
        return self

    def __deepcopy__(self, memo: object) -> Mask:
        return self


def _refuse_operand(sign: str, other: Any) -> None:
    """Refuses what is no mask but can become one; other objects may know what to do with a mask."""
    if isinstance(other, str):
        how = f"stof.masks.parse({other!r})"
    elif hasattr(other, "shape"):
        how = "stof.masks.dense(visible) of a boolean array"
    else:
        return
    raise TypeError(
        f"{sign}: expected a stof.Mask on either side, got {type(other).__name__}; make {how}"
    )


def _extents(node: dict[str, Any]) -> tuple[int, int]:
    """How many batch entries and heads a mask in JSON tells apart; 1 where they are all alike."""
    op = node["op"]
    entries, heads = 1, 1
    if op == "per_batch":
        entries = len(node["of"])
    elif op == "per_head":
        heads = len(node["of"])
    elif op == "key_lengths":
        entries = len(node["lengths"])
    elif op == "blocks":
        heads = len(node["heads"])
    elif op == "dense":
        entries, heads = (1, 1, *node["shape"])[-4:-2]
    elif op == "bound":
        entries, heads = node["batch"], node["heads"]
    below = node.get("of", [])
    for child in below if isinstance(below, list) else [below]:
        inner = _extents(child)
        entries = max(entries, 1 if op == "batch_entry" else inner[0])
        heads = max(heads, inner[1])
    return entries, heads


def made(function: Any, *arguments: Any) -> Mask:
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    assert handle.value is not None
    return Mask._of(handle.value)


def _score_shape(
    seq_q: int, seq_kv: int | None, batch: int, num_heads: int, alignment: str
) -> structs.ScoreShape:
    return structs.ScoreShape(
        alignment=structs.ALIGNMENTS[choice(alignment, "alignment", structs.ALIGNMENTS)],
        batch=whole(batch, "batch"),
        num_heads=whole(num_heads, "num_heads"),
        seq_q=whole(seq_q, "seq_q"),
        seq_kv=whole(seq_q if seq_kv is None else seq_kv, "seq_kv"),
    )


def from_json(text: str) -> Mask:
    """Inverse of Mask.to_json(). Raises Corrupt, or InvalidArgument naming the field's path."""
    if not isinstance(text, str):
        raise InvalidArgument(f"text: expected JSON, got {type(text).__name__}")
    return made(library().stof_mask_from_json, encoded(text, "text"))
