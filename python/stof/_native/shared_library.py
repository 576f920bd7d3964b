"""Finds and loads the shared library, once."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

from ..errors import NotFound
from . import structs, structs_gpu

_PACKAGED = Path(__file__).with_name("libstof_c.so")


def _path() -> Path:
    """$STOF_LIBRARY, else the file that the wheel brought."""
    given = os.environ.get("STOF_LIBRARY")
    path = Path(given) if given else _PACKAGED
    if not path.is_file():
        source = "$STOF_LIBRARY" if given else "the package"
        raise NotFound(
            f"library: expected the file {path} of {source}, which does not exist; install the "
            "wheel (pip install .), or set STOF_LIBRARY to a libstof_c.so"
        )
    return path


@lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded library with its functions declared.

    Raises NotFound where there is no library, or where it cannot be loaded.
    """
    path = _path()
    try:
        loaded = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise NotFound(
            f"library: {path} cannot be loaded: {error}; it needs x86-64 Linux with glibc"
        ) from error
    try:
        for name, arguments in {**structs.STATUS_FUNCTIONS, **structs_gpu.STATUS_FUNCTIONS}.items():
            function = getattr(loaded, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int32
        for name in ("stof_mask_release", "stof_plan_release", *structs_gpu.RELEASES):
            getattr(loaded, name).argtypes = [ctypes.c_void_p]
            getattr(loaded, name).restype = None
        for name in ("stof_text_release", "stof_bytes_release"):
            getattr(loaded, name).argtypes = [ctypes.c_void_p]
            getattr(loaded, name).restype = None
        loaded.stof_set_cancel_flag.argtypes = [ctypes.POINTER(ctypes.c_int32)]
        loaded.stof_set_cancel_flag.restype = None
        for name in ("stof_version", "stof_last_error"):
            getattr(loaded, name).argtypes = []
            getattr(loaded, name).restype = ctypes.c_char_p
    except AttributeError as error:
        raise _lacks(path, error) from error
    return loaded


def _lacks(path: Path, error: AttributeError) -> NotFound:
    return NotFound(
        f"library: {path} lacks a function that this package calls ({error}); it is of another "
        "version: use the package's own library, or one built from the same sources"
    )


@lru_cache(maxsize=None)
def models_library() -> ctypes.CDLL:
    """The same with the functions of models declared, which attention does without."""
    from . import structs_models

    loaded = library()
    try:
        structs_models.declare(loaded)
    except AttributeError as error:
        raise _lacks(_path(), error) from error
    return loaded
