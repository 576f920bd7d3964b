"""The C interface, stof/stof.h, through ctypes. Nothing outside stof uses it."""

from .call import bytes_of, check, encoded, json_of, text_of
from .shared_library import library, models_library

__all__ = ["bytes_of", "check", "encoded", "json_of", "library", "models_library", "text_of"]
