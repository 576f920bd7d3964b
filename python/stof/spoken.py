"""Calls with arguments that a function does not have, or without those it needs, in this package's
words: which are expected, which were got."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Mapping, Sequence, TypeVar, cast

from .other_names import refuse

_Function = TypeVar("_Function", bound=Callable[..., Any])


def spoken(name: str) -> Callable[[_Function], _Function]:
    """Decorates a function that users call by this name, such as "plan" or "masks.window"."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except TypeError as error:
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:  # raised inside
                    raise
            raise TypeError(_said(function, name, given, named))

        return cast(_Function, call)

    return decorate


def _said(
    function: Callable[..., Any], name: str, given: Sequence[Any], named: Mapping[str, Any]
) -> str:
    parameters = inspect.signature(function).parameters.values()
    own = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    places = [p.name for p in own if p.kind is not p.KEYWORD_ONLY]
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    unknown = [key for key in named if key not in {p.name for p in own}]
    if unknown and name in ("plan", "varlen_plan"):
        refuse(name, unknown)
    if unknown:
        having = _joined(own, "=") if own else "none"
        return f"stof.{name}() has no argument {unknown[0]}=; it has {having}"
    if len(given) > len(places) and not many:
        most = f"at most {_joined(own)}" if own else "no arguments"
        return f"stof.{name}: expected {most}, got {len(given)}"
    twice = [key for key in places[: len(given)] if key in named]
    if twice:
        return f"stof.{name}: expected {twice[0]} once, got it twice"
    needed = [p for p in own if p.default is p.empty]
    missing = [p for p in needed if p.name not in named and p.name not in places[: len(given)]]
    return f"stof.{name}: expected {_joined(needed)}, got no {_joined(missing)}"


def _joined(parameters: Sequence[inspect.Parameter], sign: str = "") -> str:
    names = [p.name + (sign or "=" * (p.kind is p.KEYWORD_ONLY)) for p in parameters]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
