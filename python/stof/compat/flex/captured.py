"""What a function can see beyond its arguments, as a key that changes when any of it does."""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import Any

import numpy
import torch

# Numbers and the like: equal means interchangeable. Compared with their types, as 1 == True == 1.0.
_VALUES = (bool, int, float, complex, str, bytes, range, type(None), type(...))
_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)

# Objects looked at per key. Beyond, a function counts as changed, so that its mask is made anew.
_MAX_OBJECTS = 2000

# Libraries whose code is taken as unchanging. What a function of theirs closes over still counts
# (and_masks() closes over mask_mods).
_LIBRARIES = frozenset(
    (*getattr(sys, "stdlib_module_names", sys.builtin_module_names), "builtins", "torch", "numpy")
)


class _Same:
    """Equal to itself only; holds what it stands for, so that no other object takes its place."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: Any) -> Any:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> Any:
        return id(self.held)


def _changed() -> Any:
    """Equal to no other key's: of what can change without being seen here."""
    return _Same(object())


def captured_values(function: Any) -> Any:
    """Equal as long as what a function reads besides its arguments is the same numbers, and the
    same objects with the same attributes. Tensors count by identity here."""
    walk = _Walk()
    return walk.value(function), walk.attributes_of_modules()


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _words(code: Any) -> set[str]:
    """Names of globals and attributes in a function's code and in functions made inside of it."""
    words = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            words |= _words(constant)
        elif isinstance(constant, str):
            words.add(constant)  # getattr(module, "name")
    return words


class _Walk:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # id -> which object it was: cycles end here
        self._words: set[str] = set()  # of all functions
        self._modules: list[types.ModuleType] = []  # not of libraries

    def value(self, x: Any) -> Any:
        if type(x) in _VALUES:
            return type(x), x
        if isinstance(x, (*_CONSTANTS, torch.Tensor)):
            return _Same(x)
        if isinstance(x, numpy.generic):
            return type(x), x.item()
        number = self._seen.get(id(x))
        if number is not None:
            return "seen", number
        if len(self._seen) >= _MAX_OBJECTS:
            return _changed()
        self._seen[id(x)] = len(self._seen)
        return _Same(x), self._contents(x)

    def attributes_of_modules(self) -> Any:
        """Those that the functions name. They may be functions that name others."""
        parts, done = [], set()
        while True:
            new = [
                (module, name)
                for module in self._modules
                for name in sorted(self._words)
                if (id(module), name) not in done and name in vars(module)
            ]
            if not new:
                return tuple(parts)
            for module, name in new:
                done.add((id(module), name))
                parts.append((name, self.value(vars(module)[name])))

    def _values(self, xs: Any) -> Any:
        return tuple(map(self.value, xs))

    def _named(self, attributes: Any) -> Any:
        return tuple((name, self.value(attributes[name])) for name in sorted(attributes, key=str))

    def _contents(self, x: Any) -> Any:
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return self._values((x.__func__, x.__self__))
        if isinstance(x, functools.partial):
            return self._values((x.func, *x.args)), self._named(x.keywords)
        if isinstance(x, types.BuiltinFunctionType):
            return self.value(x.__self__)
        if isinstance(x, types.ModuleType):
            if not _is_library(x.__name__):
                self._modules.append(x)
            return ()
        if isinstance(x, type):
            return self._class(x)
        return self._object(x)

    def _function(self, x: Any) -> Any:
        cells = []
        for cell in x.__closure__ or ():
            try:
                cells.append(self.value(cell.cell_contents))
            except ValueError:
                cells.append(None)  # a name that has no value yet
        parts = (_Same(x.__code__), *cells, *self._values(x.__defaults__ or ()))
        parts += (self._named(x.__kwdefaults__ or {}),)
        if _is_library(x.__module__):
            return parts
        words = _words(x.__code__)
        self._words |= words
        return (*parts, self._named({n: x.__globals__[n] for n in words if n in x.__globals__}))

    def _class(self, x: type) -> Any:
        """Attributes of a user's class, its methods among them; library classes do not change."""
        if _is_library(x.__module__):
            return ()
        names = [name for name in vars(x) if not name.startswith("__") or name == "__call__"]
        return self._named({n: vars(x)[n] for n in names}), self._values(x.__bases__)

    def _object(self, x: Any) -> Any:
        parts: list[Any] = [self.value(type(x))]
        if type(x) is numpy.ndarray and not x.dtype.hasobject:
            return x.dtype.str, x.shape, x.tobytes()
        if isinstance(x, (property, classmethod, staticmethod)):
            names = ("fget",) if isinstance(x, property) else ("__func__",)
            return self._values(getattr(x, name) for name in names)
        slots = [
            name
            for kind in type(x).__mro__
            for name, member in vars(kind).items()
            if isinstance(member, types.MemberDescriptorType) and hasattr(x, name)
        ]
        known = bool(slots)
        if isinstance(x, dict):
            known = True
            parts += [(self.value(key), self.value(item)) for key, item in x.items()]
        elif isinstance(x, (tuple, list)):
            known = True
            parts += self._values(x)
        elif isinstance(x, (set, frozenset)):
            known = True
            parts += self._values(sorted(x, key=repr))
        attributes = getattr(x, "__dict__", None)
        if isinstance(attributes, dict):
            known = True
            parts.append(self._named(attributes))
        parts.append(self._named({name: getattr(x, name) for name in slots}))
        # Without any of these its state is out of sight (an iterator, a generator), save of none.
        return tuple(parts) if known or type(x) is object else _changed()
