"""What stof needs of an array library, and what it says of an array's memory."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from ._native import structs
from .errors import InvalidArgument

Signature = tuple[Any, ...]


class Device(NamedTuple):
    """Where memory is: the CPU, or the GPU of that number."""

    kind: str
    ordinal: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


CPU = Device("cpu")


class View(NamedTuple):
    """An array's memory. Strides count elements."""

    data: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: Device

    @property
    def dtype_name(self) -> str:
        return structs.DTYPE_NAMES[self.dtype]

    def last_stride_is_one(self) -> bool:
        return not self.shape or self.shape[-1] <= 1 or self.strides[-1] == 1


class Framework:
    """What a call needs of an array library. One object each, made when its arrays are first
    seen."""

    name: str

    #: Equal for arrays that differ only in where their memory is; cheap.
    signature: Callable[[Any], Signature]
    #: The address of the first element; cheap.
    pointer: Callable[[Any], int]

    def dtype_code(self, dtype: Any, argument: str) -> int:
        """The constant for an element type of this library."""
        raise NotImplementedError

    def view(self, array: Any, argument: str) -> View:
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: int, like: Any) -> Any:
        """A new contiguous array on the device of `like`."""
        raise NotImplementedError

    def contiguous(self, array: Any) -> Any:
        """A row-major copy."""
        raise NotImplementedError

    def to_float32(self, array: Any) -> Any:
        """An exact copy of a 16-bit floating-point array."""
        raise NotImplementedError

    #: Whether something lowers the element types of operands, as torch.autocast does.
    is_autocast: Callable[[], bool] = staticmethod(lambda: False)

    def is_traced(self, q: Any, k: Any, v: Any) -> bool:
        """Whether somebody records operators in place of running them."""
        return False

    def check_operands(self, operands: dict[str, Any], tables: Sequence[Any] = ()) -> None:
        """Raises, naming the operand, where derivatives would be asked for, or where an array's
        values are not in memory. Score tables have no names of their own."""

    def written(self, *arrays: Any) -> None:
        """Tells the library that memory of the caller's, None for none, is about to be written."""

    def is_one(self, array: Any) -> bool:
        raise NotImplementedError

    def is_writable(self, array: Any) -> bool:
        raise NotImplementedError


def check_place(name: str, got: Any, expected: Any, do: str = "move it there") -> None:
    """Where an operand's memory is, against where the plan runs: both Devices, or both torch's."""
    if got != expected:
        raise InvalidArgument(
            f"{name}: expected memory of {expected}, where the plan runs, got {got}; {do}"
        )


def dtype_error(argument: str, got: object) -> InvalidArgument:
    return InvalidArgument(
        f"{argument}: expected a plain numeric or boolean element type in this machine's byte "
        f"order, got {got}; convert it first"
    )
