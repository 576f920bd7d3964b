"""Image classifiers: pictures in, labels out."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Sequence

from .._native import check, encoded, json_of, models_library, structs_models
from ..errors import InvalidArgument
from ..values import extent, items
from . import native
from .arguments import Masks, Progress, progress_of, threads_of
from .arrays import float32_array, numpy_for, view_of
from .base import Model
from .results import ImageLabel


class ImageClassifier(Model):
    """A ViT; stof.load() makes it. Computes on the CPU in float32."""

    @property
    def image_height(self) -> int:
        """Pixels that the model reads; images are resized to them."""
        return int(self._facts["image_height"])

    @property
    def image_width(self) -> int:
        return int(self._facts["image_width"])

    @property
    def labels(self) -> list[str]:
        """By id."""
        return list(self._facts["labels"])

    def pixels(self, image: Any) -> Any:
        """What the model reads of an image in memory, uint8 [height, width, 3] (red, green, blue; a
        PIL image in mode "RGB" as well): resized and normalised, a NumPy array, float32 [3,
        image_height, image_width]."""
        model = self._opened()
        shape = (3, self.image_height, self.image_width)
        array, view = float32_array(shape, "pixels")
        if not hasattr(image, "__dlpack__"):
            image = numpy_for("pixels").asarray(image)
        given = view_of(image, "image")
        function = models_library().stof_model_pixels
        check(function(model.handle, ctypes.byref(given), ctypes.byref(view)))
        return array

    def classify(
        self,
        images: Any,
        *,
        count: int = 5,
        mask: Any = None,
        batch: int = 8,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """The `count` likeliest labels of an image, likeliest first; a list of such lists for
        several.

        images: the path of a PNG or JPEG file, or an array uint8 [height, width, 3]; a list of
        either; or what pixels() returned, float32 [3, image_height, image_width] of one image or
        [images, 3, image_height, image_width] of several. mask: of attention, joined by &: token 0
        is the class token, the patches follow row by row. batch: images of a pass.
        progress(done, total) is called after each.

        Raises InvalidArgument naming the argument, NotFound, Corrupt or Unsupported naming the file.
        """
        model = self._opened()
        errors: list[BaseException] = []
        masks = Masks(mask)
        options = structs_models.ClassifyOptions(
            num_threads=threads_of(num_threads),
            **masks.fields,
            count=extent(count, "count", 1),
            batch=extent(batch, "batch", 1),
            on_progress=progress_of(progress, errors),
        )
        one, paths, pixels = self._images(images)
        library = models_library()
        if paths is not None:
            names = (ctypes.c_char_p * len(paths))(*paths)
            found = native.run(
                lambda: json_of(
                    library.stof_model_classify_files,
                    model.handle,
                    len(paths),
                    names,
                    ctypes.byref(options),
                ),
                errors,
            )
        else:
            view = view_of(pixels, "images")
            found = native.run(
                lambda: json_of(
                    library.stof_model_classify,
                    model.handle,
                    ctypes.byref(view),
                    ctypes.byref(options),
                ),
                errors,
            )
        labels = [[ImageLabel(**label) for label in image] for image in found]
        return labels[0] if one else labels

    def _images(self, images: Any) -> tuple[bool, list[bytes] | None, Any]:
        """Whether it is one image; the paths, or else the pixels of all."""
        if isinstance(images, (str, bytes, os.PathLike)):
            return True, [_path(images, "images")], None
        numpy = numpy_for("classify")
        if isinstance(images, Sequence):
            given = items(images, "images", "images")
            if given and all(isinstance(x, (str, bytes, os.PathLike)) for x in given):
                return False, [_path(x, f"images[{i}]") for i, x in enumerate(given)], None
            if any(isinstance(x, (str, bytes, os.PathLike)) for x in given):
                raise InvalidArgument("images: expected paths or arrays, got a list of both")
            shape = (0, 3, self.image_height, self.image_width)
            arrays = [self.pixels(x) for x in given]
            return False, None, numpy.stack(arrays) if arrays else numpy.empty(shape, "f4")
        array = images if hasattr(images, "__dlpack__") else numpy.asarray(images)
        if len(array.shape) == 3 and str(array.dtype).rpartition(".")[2] == "uint8":
            return True, None, self.pixels(array)[None]
        if len(array.shape) == 3:
            return True, None, array[None]
        return False, None, array


def _path(path: Any, name: str) -> bytes:
    return encoded(os.fsdecode(path), name)
