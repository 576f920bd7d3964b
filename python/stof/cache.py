"""The plans that attention() and varlen_attention() have made, for the next call alike."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from .latest import Latest
from .locks import Locked
from .mask import Mask
from .planning import Plan

#: Plans kept for attention() and varlen_attention(); a plan of a GPU holds some device memory.
MAX_PLANS = 256
#: Masks with shapes whose plans a thread finds by the mask's identity.
MAX_RECENT = 64


class CacheInfo(NamedTuple):
    """What the plan cache did since the process started or cache_clear()."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class PlanCache(Locked):
    """Plans by what they were asked for, and how often they were found."""

    def __init__(self, capacity: int) -> None:
        super().__init__()  # the lock is of the counts
        self._capacity = capacity
        self._plans: Latest[Plan] = Latest(capacity)
        self._hits = self._misses = 0
        self.generation = 0

    def get(self, key: Any) -> Plan | None:
        found = self._plans.find(key)
        with self._lock:
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
        return found

    def keep(self, key: Any, made: Plan) -> Plan:
        return self._plans.keep(key, made)

    def count_hit(self) -> None:
        """A call found its plan without asking."""
        self._hits += 1

    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, self._capacity, len(self._plans))

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._hits = self._misses = 0
            self.generation += 1


#: The one that attention() and varlen_attention() share.
plans = PlanCache(MAX_PLANS)


class _Recent(threading.local):
    """The plans of this thread's last calls of attention(), by mask object and shapes: a model has
    a few of each, which its layers and batches take in turn."""

    def __init__(self) -> None:
        #: key() -> the mask, which keeps its id, options, plan. The oldest first.
        self._entries: dict[Any, tuple[Any, Any, Plan]] = {}
        self._generation = -1

    @staticmethod
    def key(mask: Any, q: Any, k: Any) -> Any:
        """None where a shape is not known, or is no key."""
        try:
            found = (id(mask), q.shape, k.shape)
            hash(found)
        except (AttributeError, RuntimeError, TypeError):  # no array, nested, symbolic
            return None
        return found

    def plan_for(self, key: Any, options: Any) -> Plan | None:
        """Where it is for this very mask; element types and layouts are left to the caller to
        compare."""
        entry = self._entries.get(key)
        if entry is None or entry[1] != options or self._generation != plans.generation:
            return None
        return entry[2]

    def keep(self, key: Any, mask: Any, options: Any, plan: Plan) -> None:
        # Arrays may change in place.
        if key is None or not (mask is None or isinstance(mask, (Mask, str))):
            return
        entries = self._entries
        if self._generation != plans.generation:
            entries.clear()
            self._generation = plans.generation
        entries.pop(key, None)
        if len(entries) >= MAX_RECENT:
            del entries[next(iter(entries))]
        entries[key] = (mask, options, plan)


recent = _Recent()


def cache_info() -> CacheInfo:
    """Hits, misses and sizes of the cache of plans that attention() keeps."""
    return plans.info()


def cache_clear() -> None:
    """Forgets those plans."""
    plans.clear()
