"""What plans that only GPUs run ask of their operands: torch tensors on the plan's GPU."""

from __future__ import annotations

import ctypes
from typing import Any

from ._native import encoded, library, structs
from .arrays import device_of, native_tensor, torch_framework
from .framework import Device, View, check_place
from .errors import InvalidArgument, Unsupported


class Handle:
    """Owns a plan of the C interface."""

    __slots__ = ("value", "_release")

    def __init__(self, value: int | None, release: str) -> None:
        assert value is not None
        self.value = value
        self._release = getattr(library(), release)

    def __del__(self) -> None:
        value = getattr(self, "value", None)
        if value is not None:
            self._release(value)


def gpu_of(device: Any) -> Device:
    """The GPU that `device` names. Raises Unsupported for the CPU."""
    where = device_of(device)
    if where.kind != "cuda":
        raise Unsupported(
            f'device: expected "cuda" or "cuda:N", got {device!r}; on the CPU use stof.plan(), with '
            "stof.masks.blocks() for block lists"
        )
    return where


def target_of(device: Device, kernel: str | None = None) -> structs.Target:
    return structs.Target(
        device=structs.GPU,
        ordinal=device.ordinal,
        kernel=None if kernel is None else encoded(kernel, "kernel"),
    )


def framework_for(q: Any) -> Any:
    """torch's. Raises InvalidArgument where q is no torch tensor."""
    torch = torch_framework()
    if torch is None or not torch.is_one(q):
        raise InvalidArgument(f"q: expected a torch tensor on a GPU, got {type(q).__name__}")
    return torch


def view_of(array: Any, name: str, device: Device) -> View:
    """The memory of a torch tensor on the plan's GPU."""
    torch = torch_framework()
    if torch is None or not torch.is_one(array):
        raise InvalidArgument(
            f"{name}: expected a torch tensor on {device}, got {type(array).__name__}"
        )
    view: View = torch.view(array, name)
    check_place(name, view.device, device)
    return view


def current_stream(device: Device) -> int | None:
    """torch's current one, as the library takes it (None: the default stream)."""
    torch = torch_framework()
    return None if torch is None else torch.current_stream(device.ordinal) or None


def pointer_to(array: Any, name: str, device: Device) -> Any:
    """A stof_tensor* of a tensor, null for None; it keeps what it points to alive."""
    if array is None:
        return None
    return ctypes.pointer(native_tensor(view_of(array, name, device)))
