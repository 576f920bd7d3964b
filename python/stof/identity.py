"""Names for masks and plans, so that what records operators can hold text in place of an object.

A name is good in the process that gave it, as long as somebody keeps the object.
"""

from __future__ import annotations

import itertools
import secrets
import weakref
from typing import Any

from .errors import InvalidArgument

# Names must not mean another object in the process that loads an exported graph.
_PROCESS = secrets.token_hex(8)
_MARK = "#"  # begins no mask's text
_serials = itertools.count()
_objects: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def named(thing: Any) -> str:
    """A new name, under which `thing` is found while it lives."""
    name = f"{_MARK}{_PROCESS}/{next(_serials)}"
    _objects[name] = thing
    return name


def is_name(text: str) -> bool:
    return text.startswith(_MARK)


def find(name: str, kind: str) -> Any:
    """The object of that name; `kind` says in the error what was looked for."""
    found = _objects.get(name)
    if found is None:
        raise InvalidArgument(
            f"{kind}: expected one that is alive in this process, got the name {name}; keep the "
            f"{kind} object as long as compiled code uses it, and do not move exported code that "
            "holds one to another process: write masks as text there"
        )
    return found
