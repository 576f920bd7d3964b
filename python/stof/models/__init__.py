"""Models from their folders and files: stof.load() and what it returns."""

import os

from . import at_exit
from .base import Model
from .encoder import EncoderModel
from .generator import TextGenerator
from .images import ImageClassifier
from .loading import load
from .results import (
    Encoding,
    FilledMask,
    GeneratedText,
    ImageLabel,
    Seq2SeqTask,
    TokenCandidate,
)
from .seq2seq import Seq2SeqGenerator
from .stream import TextStream

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=at_exit.after_fork)

__all__ = [
    "EncoderModel",
    "Encoding",
    "FilledMask",
    "GeneratedText",
    "ImageClassifier",
    "ImageLabel",
    "Model",
    "Seq2SeqGenerator",
    "Seq2SeqTask",
    "TextGenerator",
    "TextStream",
    "TokenCandidate",
    "load",
]
