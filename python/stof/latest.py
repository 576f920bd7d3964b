"""The values used last, by key: what every cache here that forgets is made of."""

from __future__ import annotations

from collections import OrderedDict
from typing import Callable, Generic, Hashable, TypeVar

from .locks import Locked

Value = TypeVar("Value")


class Latest(Locked, Generic[Value]):
    """At most `capacity` values; the one that was not used for longest goes first. Safe from
    several threads: two that miss at once may both make a value, of which one is kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        super().__init__()

    def find(self, key: Hashable) -> Value | None:
        """The value, from now on the one used last; None where there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def keep(self, key: Hashable, value: Value) -> Value:
        """Keeps a value and returns it, or the one that another thread has kept meanwhile."""
        with self._lock:
            kept = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
            return kept

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value, made where there is none."""
        found = self.find(key)
        return self.keep(key, make()) if found is None else found

    def all(self) -> list[Value]:
        """Those used longest ago first."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)
