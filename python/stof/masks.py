"""Masks: which keys each query sees, as expressions.

``masks.causal() & (masks.window(256, 0) | masks.global_(cols=64))`` never becomes an array of S²
elements. docs/masks.md defines every primitive; ``masks.parse(text)`` reads the same from text.

Every function raises InvalidArgument naming the argument, what was expected and got. Lengths are
not known yet: an array that does not fit them is refused where the mask is bound or planned.
"""

from __future__ import annotations

import ctypes
import difflib
import json
import warnings
from typing import Any, Iterable, Sequence

from ._native import encoded, library, structs
from .arrays import adopt, native_tensor
from .framework import CPU
from .errors import Corrupt, InvalidArgument, NotFound
from .spoken import spoken
from .values import items, number, path_of, seed_of, truth, whole, wholes
from .mask import Mask, from_json, made


__all__ = [
    "Mask",
    "all",
    "batch_entry",
    "bert_padding",
    "bigbird",
    "block_causal",
    "block_window",
    "blocks",
    "causal",
    "chunked",
    "dense",
    "dilated",
    "document",
    "from_json",
    "global_",
    "global_tokens",
    "intervals",
    "key_lengths",
    "load",
    "longformer",
    "neighbourhood",
    "none",
    "parse",
    "per_batch",
    "per_head",
    "predicate",
    "prefix",
    "random",
    "random_blocks",
    "shifted",
    "sink",
    "sliding",
    "sparse_transformer_fixed",
    "sparse_transformer_strided",
    "streaming",
    "strided",
    "summary",
    "tree",
    "window",
]


def __dir__() -> list[str]:
    return __all__


# Names that masks have elsewhere, and what serves here.
_ELSEWHERE = {
    "bidirectional": "all()",
    "bottom_right": 'causal() with alignment="bottom_right" in the call',
    "document_ids": 'predicate("doc[q] == doc[k]", doc=ids)',
    "full": "all()",
    "global": "global_(rows, cols), or global_tokens(tokens)",
    "local": "window(left, right)",
    "padding": "key_lengths(lengths)",
    "sliding_window": "sliding(w), or window(left, right)",
}


def __getattr__(name: str) -> Any:
    """No more functions: a name that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, __all__, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    if name in _ELSEWHERE:
        hint = f"; use {_ELSEWHERE[name]}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


# --- text and JSON --------------------------------------------------------------------------------


def parse(text: str, base_dir: str | None = None) -> Mask:
    """A mask of docs/masks.md's text, such as "causal & (window(256,0) | global(cols=64))".

    Files that it names are read relative to base_dir; None refuses them, for text from strangers.
    Raises InvalidArgument with a caret under the offending column.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"text: expected a string, got {type(text).__name__}")
    folder = None if base_dir is None else encoded(path_of(base_dir, "base_dir"), "base_dir")
    return made(library().stof_mask_parse, encoded(text, "text"), folder)


def load(path: Any) -> Mask:
    """The mask of a file that Mask.save() wrote. Raises NotFound, or Corrupt naming the file."""
    name = path_of(path, "path")
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        raise NotFound(f"path: expected a file of Mask.save(), got {name}, which is none") from None
    except UnicodeDecodeError:
        raise Corrupt(f"{name}: expected JSON as Mask.save() writes it, got no text") from None
    try:
        return from_json(text)
    except (Corrupt, InvalidArgument) as error:
        raise type(error)(f"{name}: {error}") from None


def dense(visible: Any) -> Mask:
    """A boolean array [Sq, Sk] or [B|1, H|1, Sq|1, Sk] in host memory, any strides, true where
    visible; copied as bits."""
    framework, array = adopt(visible, "visible")
    view = framework.view(array, "visible")
    if view.device != CPU:
        raise InvalidArgument(
            f"visible: expected an array in host memory, got one on {view.device}; pass it as the mask "
            "of attention() or plan(), which read it there, or pass visible.cpu()"
        )
    if view.dtype != structs.BOOL:
        raise InvalidArgument(
            f"visible: expected bool (true is visible), got {view.dtype_name}; pass an additive mask "
            "as bias=, or the comparison that makes it boolean"
        )
    return made(library().stof_mask_dense, ctypes.byref(native_tensor(view)))


def predicate(text: str, /, **tables: Any) -> Mask:
    """Where a boolean expression in b, h, q, k and tables holds, as in
    ``predicate("(q - k <= 4) & (doc[q] == doc[k])", doc=numpy.array([0, 0, 1, 1]))``.

    b, h, q and k are batch entry, query head, query and key; docs/masks.md has the language. A
    table is an array of bool, int32 or int64 in host memory, any shape and strides, read as name[i,
    j]; copied. The result is the simplest mask that says so. Raises InvalidArgument with a caret
    under the offending column, or naming the table.
    """
    if not isinstance(text, str):
        hint = "; stof.compat.flex takes functions of (b, h, q, k)" if callable(text) else ""
        raise InvalidArgument(f"text: expected a string, got {type(text).__name__}{hint}")
    views = []
    for name, table in tables.items():
        framework, array = adopt(table, name)
        view = framework.view(array, name)
        if view.device != CPU:
            raise InvalidArgument(
                f"{name}: expected a table in host memory, got one on {view.device}; pass {name}.cpu()"
            )
        views.append(native_tensor(view))
    count = len(tables)
    names = (ctypes.c_char_p * count)(*(encoded(name, "tables") for name in tables))
    given = (ctypes.POINTER(structs.Tensor) * count)(*map(ctypes.pointer, views))
    return made(library().stof_mask_predicate, encoded(text, "text"), count, names, given)


# --- primitives -----------------------------------------------------------------------------------


def _lists(rows: Any, name: str) -> list[list[int]]:
    given = items(rows, name, "lists of whole numbers")
    return [wholes(row, f"{name}[{i}]") for i, row in enumerate(given)]


def _node(op: str, **fields: Any) -> Mask:
    try:
        return from_json(json.dumps({"op": op, **fields}))
    except InvalidArgument as error:  # of the whole node, which is "$" in JSON
        raise InvalidArgument(str(error).removeprefix("$: ")) from None


def all() -> Mask:  # noqa: A001  the algebra's name
    """Everything."""
    return _node("all")


def none() -> Mask:
    """Nothing."""
    return _node("none")


def causal(offset: int = 0) -> Mask:
    """k <= q + offset."""
    return _node("causal", offset=whole(offset, "offset"))


def window(left: int, right: int) -> Mask:
    """q - left <= k <= q + right, both inclusive; a negative extent is unbounded on that side."""
    return _node("window", left=whole(left, "left"), right=whole(right, "right"))


def chunked(n: int) -> Mask:
    """q and k in the same chunk of n tokens."""
    return _node("chunked", n=whole(n, "n"))


def block_causal(n: int) -> Mask:
    """floor(k/n) <= floor(q/n): causal between blocks, full inside one (block diffusion)."""
    return _node("block_causal", n=whole(n, "n"))


def block_window(block: int, left: int, right: int) -> Mask:
    """floor(q/block) - left <= floor(k/block) <= floor(q/block) + right; negative is unbounded."""
    return _node(
        "block_window",
        block=whole(block, "block"),
        left=whole(left, "left"),
        right=whole(right, "right"),
    )


def prefix(n: int) -> Mask:
    """The first n keys, for every query (prefix-LM: causal() | prefix(n))."""
    return _node("prefix", n=whole(n, "n"))


def sink(n: int) -> Mask:
    """prefix(n) under its streaming name."""
    return _node("sink", n=whole(n, "n"))


def global_(rows: int = 0, cols: int = 0) -> Mask:
    """The first `rows` queries see everything, the first `cols` keys are seen by all ("global" in
    text)."""
    for name, count in (("rows", rows), ("cols", cols)):
        if hasattr(count, "__len__") and not isinstance(count, str):
            raise InvalidArgument(
                f"{name}: expected how many of the first tokens, got {count!r}; use "
                "global_tokens(tokens) for listed ones"
            )
    return _node("global", rows=whole(rows, "rows"), cols=whole(cols, "cols"))


def global_tokens(tokens: Iterable[int], rows: bool = True, cols: bool = True) -> Mask:
    """The listed tokens see everything (rows) and are seen by all (cols)."""
    return _node(
        "global_tokens",
        tokens=wholes(tokens, "tokens"),
        rows=truth(rows, "rows"),
        cols=truth(cols, "cols"),
    )


def dilated(window: int, rate: int) -> Mask:
    """|q - k| <= window and q - k a multiple of rate."""
    return _node("dilated", window=whole(window, "window"), rate=whole(rate, "rate"))


def strided(local: int, stride: int) -> Mask:
    """|q - k| <= local or q - k a multiple of stride (Child et al. 2019, arXiv 1904.10509)."""
    return _node("strided", local=whole(local, "local"), stride=whole(stride, "stride"))


def summary(stride: int, count: int) -> Mask:
    """k mod stride >= stride - count: the summary columns of the fixed pattern, ibid."""
    return _node("summary", stride=whole(stride, "stride"), count=whole(count, "count"))


def document(lengths: Iterable[int]) -> Mask:
    """Packed documents of these lengths, one after the other: q and k in the same one. Tokens past
    their sum see nothing, so no lengths give none(). For a document's number per token use
    ``predicate("doc[q] == doc[k]", doc=ids)``; numbers 0, 0, 1, ... in place of lengths are
    refused, and lengths that look cumulative, 0, 10, 64, are warned about."""
    given = wholes(lengths, "lengths")
    if _are_numbers(given):
        raise InvalidArgument(
            f"lengths: expected the length of each document, got {_shortened(given)}, which look like "
            "a document's number for each token; pass their counts (numpy.bincount(ids)), or "
            'predicate("doc[q] == doc[k]", doc=ids). If they are lengths leave out those of 0'
        )
    if _are_cumulative(given):
        warnings.warn(
            f"lengths: {_shortened(given)} look like cumulative lengths, and are taken for the length of "
            "each document; pass numpy.diff(cu_seqlens), or leave out lengths of 0",
            stacklevel=2,
        )
    return _node("document", lengths=given)


def _are_numbers(values: list[int]) -> bool:
    """0, 0, 1, 1, 1, 2 and the like: they start at 0, go up by at most 1, and some come again."""
    steps = {after - before for before, after in zip(values, values[1:])}
    return len(values) > 3 and values[0] == 0 and steps == {0, 1}


def _are_cumulative(values: list[int]) -> bool:
    """0, 10, 64 and the like: from 0 on they ascend."""
    return len(values) > 2 and values[0] == 0 and values == sorted(set(values))


def _shortened(values: list[int]) -> str:
    return str(values) if len(values) <= 16 else f"{values[:16]} and {len(values) - 16} more"


def key_lengths(lengths: Iterable[int]) -> Mask:
    """k < lengths[b] for batch entry b (right padding); one length serves all entries."""
    return _node("key_lengths", lengths=wholes(lengths, "lengths"))


def neighbourhood(
    grid: Sequence[int],
    kernel: Sequence[int],
    *,
    dilation: Sequence[int] = (),
    tile: Sequence[int] = (),
    shift: Sequence[int] = (),
) -> Mask:
    """Neighbourhoods on a token grid of 1 to 3 dimensions, last fastest, the kernel clamped at the
    border (NATTEN: Hassani et al. 2023, arXiv 2204.07143); `tile` makes sliding tiles and Swin's
    windows."""
    return _node(
        "neighbourhood",
        grid=wholes(grid, "grid"),
        kernel=wholes(kernel, "kernel"),
        dilation=wholes(dilation, "dilation"),
        tile=wholes(tile, "tile"),
        shift=wholes(shift, "shift"),
    )


def tree(parents: Iterable[int], prefix: int = 0) -> Mask:
    """k < prefix, or node k - prefix is node q or one of its ancestors; parents[i] < i, -1 for a
    root (speculative decoding)."""
    return _node("tree", parents=wholes(parents, "parents"), prefix=whole(prefix, "prefix"))


def intervals(begin: Iterable[Iterable[int]], end: Iterable[Iterable[int]]) -> Mask:
    """Key k is hidden from q where begin[i][k] <= q < end[i][k] for some list i (Wang et al. 2024,
    arXiv 2410.01359)."""
    return _node(
        "intervals",
        begin=_lists(begin, "begin"),
        end=_lists(end, "end"),
    )


def blocks(
    heads: Iterable[Iterable[Iterable[int]]],
    *,
    block_q: int = 0,
    block_kv: int = 0,
    row_sizes: Sequence[int] = (),
    col_sizes: Sequence[int] = (),
) -> Mask:
    """heads[h][r] are the visible block columns of block row r, in any order; one head serves all.
    Blocks of block_q x block_kv tokens, or ragged ones of row_sizes and col_sizes."""
    return _node(
        "blocks",
        block_q=whole(block_q, "block_q"),
        block_kv=whole(block_kv, "block_kv"),
        heads=[
            _lists(rows, f"heads[{h}]")
            for h, rows in enumerate(items(heads, "heads", "lists for each head"))
        ],
        row_sizes=wholes(row_sizes, "row_sizes"),
        col_sizes=wholes(col_sizes, "col_sizes"),
    )


def random_blocks(
    block: int,
    *,
    count: int | None = None,
    rate: float | None = None,
    seed: int = 0,
    per_head: bool = False,
) -> Mask:
    """Seeded random blocks of block x block tokens: `count` distinct block columns per block row,
    or each block with probability `rate`; the same on every machine."""
    amount: dict[str, Any] = {}
    if count is not None:
        amount["count"] = whole(count, "count")
    if rate is not None:
        amount["rate"] = number(rate, "rate")
    return _node(
        "random_blocks",
        block=whole(block, "block"),
        seed=seed_of(seed),
        per_head=truth(per_head, "per_head"),
        **amount,
    )


def random(rate: float, seed: int = 0, per_head: bool = False) -> Mask:
    """Each pair with probability `rate`, independently; the same on every machine."""
    return _node(
        "random",
        rate=number(rate, "rate"),
        seed=seed_of(seed),
        per_head=truth(per_head, "per_head"),
    )


# --- operators ------------------------------------------------------------------------------------


def _tree(mask: Any, name: str) -> Any:
    if not isinstance(mask, Mask):
        raise InvalidArgument(f"{name}: expected a stof.Mask, got {type(mask).__name__}")
    return json.loads(mask.to_json())


def _trees(masks: Any) -> list[Any]:
    return [_tree(m, f"masks[{i}]") for i, m in enumerate(items(masks, "masks", "stof.Mask"))]


def shifted(mask: Mask, dq: int = 0, dk: int = 0) -> Mask:
    """The mask asked at (q + dq, k + dk)."""
    return _node("shifted", of=_tree(mask, "mask"), dq=whole(dq, "dq"), dk=whole(dk, "dk"))


def per_head(masks: Sequence[Mask]) -> Mask:
    """Head h uses masks[h]; one mask serves all."""
    return _node("per_head", of=_trees(masks))


def per_batch(masks: Sequence[Mask]) -> Mask:
    """Batch entry b uses masks[b]; one mask serves all."""
    return _node("per_batch", of=_trees(masks))


def batch_entry(mask: Mask, entry: int) -> Mask:
    """What batch entry `entry` of the mask sees, for every batch entry."""
    return _node("batch_entry", of=_tree(mask, "mask"), entry=whole(entry, "entry"))


# --- presets --------------------------------------------------------------------------------------


def _preset(name: str, **parameters: int) -> Mask:
    numbers = {k: seed_of(v) if k == "seed" else whole(v, k) for k, v in parameters.items()}
    arguments = ", ".join(f"{k}={number}" for k, number in numbers.items())
    return parse(f"{name}({arguments})")


def bert_padding(lengths: Iterable[int]) -> Mask:
    """key_lengths(lengths)."""
    return key_lengths(lengths)


def sliding(w: int = 256) -> Mask:
    """|q - k| <= w."""
    return _preset("sliding", w=w)


def longformer(w: int = 256, num_global: int = 64) -> Mask:
    """sliding(w) | global_(num_global, num_global) (Beltagy et al. 2020, arXiv 2004.05150)."""
    return _preset("longformer", w=w, num_global=num_global)


def bigbird(
    block: int = 64,
    window_blocks: int = 1,
    global_blocks: int = 2,
    random_count: int = 3,
    seed: int = 0,
) -> Mask:
    """Windows, global blocks and random ones (Zaheer et al. 2020, arXiv 2007.14062)."""
    return _preset(
        "bigbird",
        block=block,
        window_blocks=window_blocks,
        global_blocks=global_blocks,
        random_count=random_count,
        seed=seed,
    )


def sparse_transformer_strided(local: int = 128, stride: int = 128) -> Mask:
    """causal() & strided(local, stride)."""
    return _preset("sparse_transformer_strided", local=local, stride=stride)


def sparse_transformer_fixed(stride: int = 128, count: int = 8) -> Mask:
    """causal() & (chunked(stride) | summary(stride, count))."""
    return _preset("sparse_transformer_fixed", stride=stride, count=count)


def streaming(num_sinks: int = 4, w: int = 1024) -> Mask:
    """causal() & (sink(num_sinks) | window(w, 0)) (Xiao et al. 2023, arXiv 2309.17453)."""
    return _preset("streaming", num_sinks=num_sinks, w=w)


for _name in set(__all__) - {"Mask"}:
    globals()[_name] = spoken(f"masks.{_name}")(globals()[_name])
