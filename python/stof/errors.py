"""What stof raises: one class for each status of the C interface.

A message names the argument, says what was expected and what was got, and what to do. The classes
also derive from Python's nearest exception, so that ``except ValueError`` works.
"""

from __future__ import annotations


class StofError(Exception):
    """Base of everything that stof raises."""


class InvalidArgument(StofError, ValueError):
    """An argument that can never work."""


class Unsupported(StofError, NotImplementedError):
    """Legal, but nothing here can honour it. stof refuses rather than ignore an option."""


class NoSuchMethod(Unsupported, AttributeError):
    """A method that models of another kind have."""


class NotFound(StofError, LookupError):
    """A file, GPU, driver or library that does not exist."""


class Corrupt(StofError, ValueError):
    """Text or a file that is not what it claims to be."""


class OutOfMemory(StofError, MemoryError):
    """No memory, on the host or on the GPU."""


class IoError(StofError, OSError):
    """The operating system refused a read or write."""


class CudaError(StofError, RuntimeError):
    """A call of the GPU driver failed."""


class JitError(StofError, RuntimeError):
    """A kernel could not be compiled."""


class InternalError(StofError, RuntimeError):
    """A bug in stof; please report it."""


#: The C interface's stof_status, 1 to 9.
BY_STATUS: dict[int, type[StofError]] = {
    1: InvalidArgument,
    2: Unsupported,
    3: NotFound,
    4: Corrupt,
    5: OutOfMemory,
    6: IoError,
    7: CudaError,
    8: JitError,
    9: InternalError,
}
