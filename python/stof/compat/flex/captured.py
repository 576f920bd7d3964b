"""What a function can see beyond its arguments, as a key that changes when any of it does."""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import re
import sys
import types
from typing import Any

import numpy
import torch

# Numbers and the like: equal means interchangeable. Compared with their types, as 1 == True == 1.0.
_VALUES = (
    bool, int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented),
)  # fmt: skip
_CONSTANTS = (
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
    numpy.dtype, numpy.ufunc,
)  # fmt: skip

# Objects looked at per key. Beyond, a function counts as changed, so that its mask is made anew.
_MAX_OBJECTS = 2000

# Libraries whose code is taken as unchanging. What a function of theirs closes over still counts
# (and_masks() closes over mask_mods).
_LIBRARIES = frozenset(
    (*getattr(sys, "stdlib_module_names", sys.builtin_module_names), "builtins", "torch", "numpy")
)


# Of these, what has no state that a function could read, save the names of _STATE. The rest of the
# standard library (os, time, random, threading) is read anew in every call.
_STATELESS = frozenset(
    "abc builtins cmath collections copy dataclasses enum fractions functools inspect itertools "
    "math numbers numpy operator re string torch types typing".split()
)
_STATE = re.compile(
    r"_*(get_|are_|current_|initial_seed|default_generator|rand|seed|backends|geterr)"
    r"|_*is_\w*(enabled|available|initialized|capturing|set)|\w*_(count|allocated|reserved)"
)
_STATEFUL_BUILTINS = frozenset("__import__ eval exec globals input open vars".split())

# Words of functions that find attributes by names which they compute, and what leads from a
# function or frame to names that it does not have in its code.
_BY_NAME = frozenset(
    "getattr hasattr attrgetter getattr_static getmembers getmembers_static __dict__ "
    "__getattribute__".split()
)
_REFLECTION = frozenset("__globals__ __builtins__ f_globals f_locals f_builtins".split())

# What Python itself keeps in a class or module, or makes of what else is in it.
_OF_PYTHON = frozenset(
    "__dict__ __weakref__ __slots__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __dataclass_fields__ __dataclass_params__ __orig_bases__ __parameters__ "
    "__type_params__ __static_attributes__ __firstlineno__ __abstractmethods__ _abc_impl "
    "__builtins__ __spec__ __loader__ __cached__".split()
)

# Classes of C whose state is looked at below, or never changes. An object of another one, or of a
# class derived from it, keeps what it knows where it is not seen: ctypes' numbers, weak references.
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
)
_SEEN = frozenset(
    (
        object, dict, list, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict,
        types.SimpleNamespace, torch.Size, slice, *_VALUES, *_DESCRIPTORS,
        types.MemberDescriptorType, types.CodeType, types.GenericAlias, re.Pattern, property,
        classmethod, staticmethod, functools.partial,
        type(collections.namedtuple("_", "x").x),
    )
)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _is_of_c(kind: type) -> bool:
    """Whether a class, its bases aside, has more to an object than attributes and slots."""
    return kind not in _SEEN and any(
        isinstance(member, _DESCRIPTORS)
        and member.__objclass__ is kind  # not another's that is named anew, as in enum.IntEnum
        and name not in ("__dict__", "__weakref__")
        or name == "__new__" and getattr(member, "__self__", None) is kind
        for name, member in vars(kind).items()
    )  # fmt: skip


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
    # What torch.tensor() and the like depend on.
    defaults = torch.get_default_dtype(), torch.get_default_device()
    return walk.value(function), walk.attributes_of_modules(), defaults


def _has_state(module: Any, name: str = "") -> bool:
    """Whether something of a library gives what may change from call to call."""
    if not _is_library(module):
        return False
    first, *folders = module.split(".")
    if first.lstrip("_") not in _STATELESS or "random" in folders:
        return True
    return _STATE.match(name) is not None


def _is_bare(tensor: torch.Tensor) -> bool:
    """Whether a tensor has its elements only, watched elsewhere, and nothing of a user's."""
    if vars(tensor) or not _is_library(type(tensor).__module__):
        return False
    return not tensor.is_leaf or tensor.grad is None


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _builtin(name: str) -> Any:
    return getattr(builtins, name)


def _words(code: Any) -> set[str]:
    """Names of globals and attributes in a function's code and in functions made inside of it."""
    words = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            words |= _words(constant)
        elif isinstance(constant, str):
            words.add(constant)  # getattr(module, "name")
    return words


@functools.lru_cache(maxsize=1024)
def _imports(code: Any) -> tuple[str, ...]:
    """Names of the modules that a function, or one made inside of it, imports when it runs."""
    own = [x.argval for x in dis.get_instructions(code) if x.opname == "IMPORT_NAME"]
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return (*own, *(name for c in inner for name in _imports(c)))


class _Walk:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # id -> which object it was: cycles end here
        self._words: set[str] = set()  # of all functions
        self._modules: list[types.ModuleType] = []

    def value(self, x: Any) -> Any:
        if type(x) in _VALUES:
            return type(x), x
        if isinstance(x, _CONSTANTS):
            return _Same(x)
        if isinstance(x, torch.Tensor) and _is_bare(x):
            return _Same(x), x.requires_grad
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
        parts: list[Any] = []
        done = set()
        while True:
            new = [
                (module, name)
                for module in self._modules
                for name in self._names_in(module)
                if (id(module), name) not in done and name in vars(module)
            ]
            if not new:
                break
            for module, name in new:
                done.add((id(module), name))
                parts.append((name, self._attribute(module, name)))
        if self._words & _BY_NAME and any(_is_library(m.__name__) for m in self._modules):
            parts.append(_changed())  # a name of a library's that has state may be among them
        return tuple(parts)

    def _names_in(self, module: types.ModuleType) -> list[str]:
        """What functions may read of a module: what they name, and what they may compute."""
        if _is_library(module.__name__):
            return sorted(self._words)
        if self._words & _BY_NAME:
            return sorted(vars(module).keys() - (_OF_PYTHON - self._words))
        return sorted(self._words | {"__getattr__"})

    def _attribute(self, module: types.ModuleType, name: str) -> Any:
        x = vars(module)[name]
        if not _is_library(module.__name__):
            return self.value(x)
        if _has_state(module.__name__, name):
            return _changed()
        return self.value(x) if isinstance(x, types.ModuleType) else _Same(x)

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
            return self._values((x.func, *x.args)), self._named(x.keywords), self._object(x)
        if isinstance(x, types.BuiltinFunctionType):
            owner = x.__self__
            module = owner.__name__ if isinstance(owner, types.ModuleType) else x.__module__
            if _has_state(module, x.__name__) or x in map(_builtin, _STATEFUL_BUILTINS):
                return _changed()
            return None if isinstance(owner, types.ModuleType) else self.value(owner)
        if isinstance(x, types.ModuleType):
            if _has_state(x.__name__):
                return _changed()
            self._modules.append(x)
            return self.value(type(x))
        if isinstance(x, type):
            return self._class(x)
        if isinstance(x, torch.Tensor):
            grad = x.grad if x.is_leaf else None
            state = None if grad is None else (_Same(grad), grad._version)
            return x.requires_grad, state, self.value(type(x)), self._named(vars(x))
        return self._object(x)

    def _function(self, x: Any) -> Any:
        cells = []
        for cell in x.__closure__ or ():
            try:
                cells.append(self.value(cell.cell_contents))
            except ValueError:
                cells.append(None)  # a name that has no value yet
        parts = (_Same(x.__code__), *cells, *self._values(x.__defaults__ or ()))
        parts += (self._named(x.__kwdefaults__ or {}), self._named(vars(x)))
        # Whose code it is. functools.wraps() gives what wraps a function that one's __module__.
        module = x.__globals__.get("__name__")
        if _is_library(module):
            return (*parts, _changed()) if _has_state(module, x.__name__) else parts
        words = _words(x.__code__)
        self._words |= words
        imported = _imports(x.__code__)
        parts += self._values(sys.modules[name] for name in imported if name in sys.modules)
        if (
            any(word not in x.__globals__ for word in words & _STATEFUL_BUILTINS)
            or words & _REFLECTION
            or not all(name in sys.modules for name in imported)  # relative, or imported later
        ):
            parts += (_changed(),)
        found = {n: x.__globals__[n] for n in words if n in x.__globals__}
        of_builtins = {n: _builtin(n) for n in words - found.keys() if n in vars(builtins)}
        return (*parts, self._named(found), self._named(of_builtins))

    def _class(self, x: type) -> Any:
        """Attributes of a user's class, its methods among them; library classes do not change."""
        # dataclasses.make_dataclass() gives the user's classes to a module that has none of them.
        is_made = x.__module__ == "types" and not hasattr(types, x.__name__)
        if _is_library(x.__module__) and not is_made:
            return ()
        names = vars(x).keys() - _OF_PYTHON
        own = self._named({name: vars(x)[name] for name in names})
        return own, self._values(x.__bases__), self.value(type(x))

    def _object(self, x: Any) -> Any:
        parts: list[Any] = [self.value(type(x))]
        if type(x) is numpy.ndarray and not x.dtype.hasobject:
            return x.dtype.str, x.shape, x.tobytes()
        if isinstance(x, property):
            parts += self._values((x.fget, x.fset, x.fdel))
        elif isinstance(x, (classmethod, staticmethod)):
            parts.append(self.value(x.__func__))
        elif isinstance(x, types.GenericAlias):
            parts.append(self.value(x.__origin__))
        elif isinstance(x, collections.defaultdict):
            parts.append(self.value(x.default_factory))
        slots = [
            name
            for kind in type(x).__mro__
            for name, member in vars(kind).items()
            if isinstance(member, types.MemberDescriptorType) and hasattr(x, name)
        ]
        if any(map(_is_of_c, type(x).__mro__)):
            return _changed()
        if isinstance(x, dict):
            parts += [(self.value(key), self.value(item)) for key, item in x.items()]
        elif isinstance(x, (tuple, list)):
            parts += self._values(x)
        elif isinstance(x, (set, frozenset)):
            parts += self._values(sorted(x, key=repr))
        attributes = getattr(x, "__dict__", None)
        if isinstance(attributes, dict):
            parts.append(self._named(attributes))
        parts.append(self._named({name: getattr(x, name) for name in slots}))
        return tuple(parts)
