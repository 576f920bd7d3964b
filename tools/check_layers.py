#!/usr/bin/env python3
"""Checks rules of the source tree that no compiler checks; prints each violation and how to mend it.

  layers        a layer includes only itself and layers below it (LAYERS, lowest first)
  public        headers in include/stof/ include only std and stof headers and have no #if on build flags
  environment   only src/core/env.cc reads environment variables
  cuda          only src/backend/cuda/ includes CUDA headers
  length        no source file, test or script is longer than 500 lines
"""

import argparse
import pathlib
import re
import sys

LAYERS = ["core", "tensor", "expr", "mask", "simulate", "plan", "graph", "fusion", "codegen", "jit", "backend/cpu",
          "backend/cuda", "exec", "tune", "model", "capi", "cli"]

# The layer of each public header. A new header must be named here: that is how its layer is decided.
PUBLIC_HEADERS = {
    "error.h": "core", "fingerprint.h": "core", "dtype.h": "core", "version.h": "core",
    "tensor.h": "tensor", "npy.h": "tensor", "safetensors.h": "tensor", "checkpoint.h": "tensor",
    "gguf.h": "tensor",
    "expression.h": "expr",
    "mask.h": "mask", "block_mask.h": "mask", "mask_draw.h": "mask", "mask_set.h": "mask",
    "prune.h": "mask",
    "simulate.h": "simulate",
    "mask_plan.h": "plan",
    "attention.h": "backend/cpu",
    "system_info.h": "backend/cpu",
    "cuda_attention.h": "backend/cuda", "cuda_block_lists.h": "backend/cuda",
    "cuda_decode.h": "backend/cuda", "cuda_prune.h": "backend/cuda", "gpu_info.h": "backend/cuda",
    "load_options.h": "model", "text_encoder.h": "model", "image_classifier.h": "model",
    "text_generator.h": "model", "seq2seq_generator.h": "model",
    "stof.h": "capi", "models.h": "capi",
}
# Of those, the headers that C programs include, and what they may have that others may not.
C_HEADERS = {"include/stof/stof.h", "include/stof/models.h"}
C_STD_HEADERS = {"stddef.h", "stdint.h"}
C_CONDITIONALS = {"ifndef STOF_STOF_H", "ifndef STOF_MODELS_H", "ifdef __cplusplus"}

MAX_LINES = 500
LAYERED_FOLDERS = ("include/stof", "src", "cli")
OTHER_FOLDERS = ("kernels", "tests", "bench", "python", "tools", "scripts")
SOURCE_SUFFIXES = {".h", ".cc", ".cuh", ".cu", ".py"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b\s*(.*)")
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cublasLt|nvrtc|nccl|nvToolsExt|nvtx3/)[\w/]*(\.h|\.hpp)$")
# C++ standard headers are single words without an extension.
STD_HEADER = re.compile(r"^[a-z0-9_]+$")


def layer_of(path):
    """Layer of a file given relative to the repository, or None for a file outside the layers."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[:2] == ("include", "stof"):
        return PUBLIC_HEADERS.get("/".join(parts[2:]))
    if parts[0] == "cli":
        return "cli"
    if parts[0] == "src":
        folder = "/".join(parts[1:-1])
        return next((layer for layer in LAYERS if folder == layer or folder.startswith(layer + "/")), None)
    return None


def layer_of_include(target):
    if target.startswith("stof/"):
        return PUBLIC_HEADERS.get(target.removeprefix("stof/"))
    return layer_of("src/" + target)


def check_include(path, layer, quote, target):
    """Yields (what, why and what to do) for one #include."""
    if CUDA_HEADER.match(target) and layer != "backend/cuda":
        yield (f"includes the CUDA header {target}",
               "only src/backend/cuda may; move this code there or behind an interface of ours")
    if path.startswith("include/"):
        std = STD_HEADER.match(target) or (path in C_HEADERS and target in C_STD_HEADERS)
        if not target.startswith("stof/") and not (quote == "<" and std):
            yield (f"includes {target}",
                   "public headers may include only std and stof/ headers; hide it behind a pointer in src/")
    included = layer_of_include(target)
    if target.startswith("stof/") and included is None:
        yield (f"includes {target}, which has no layer",
               "add the header to PUBLIC_HEADERS in tools/check_layers.py, or correct its name")
    if included and layer and LAYERS.index(included) > LAYERS.index(layer):
        yield (f"{layer} includes {target} of the higher layer {included}",
               f"the order is {' < '.join(LAYERS)}; move the code up or the declaration down")


def check_length(lines):
    if len(lines) > MAX_LINES:
        yield (MAX_LINES + 1, f"has {len(lines)} lines, {MAX_LINES} are allowed",
               "find the second idea in it and give it its own file")


def check_layered_file(path, lines):
    """Yields (line number, what, why and what to do) for a file given relative to the repository."""
    layer = layer_of(path)
    if layer is None:
        yield (1, "belongs to no layer",
               "put it in a folder of LAYERS, or a public header in PUBLIC_HEADERS (tools/check_layers.py)")
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            for what, why in check_include(path, layer, *match.groups()):
                yield number, what, why
        code = line.split("//", 1)[0]
        if GETENV.search(code) and path != "src/core/env.cc":
            yield (number, "reads an environment variable",
                   "use env_string() or env_int() of core/env.h, so that all variables are in one list")
        if path.startswith("include/") and (match := CONDITIONAL.match(code)) and not (
                path in C_HEADERS and f"{match.group(1)} {match.group(2).strip()}" in C_CONDITIONALS):
            yield (number, f"has a conditional: #{match.group(1)} {match.group(2).strip()}",
                   "public headers must mean the same in every build; decide at run time or in src/")


def check_tree(root):
    """Yields (path, line number or None for "checked", what, why) for all files under root."""
    for folder in LAYERED_FOLDERS + OTHER_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCE_SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            lines = file.read_text(encoding="utf-8").splitlines()
            yield path, None, "", ""
            for number, what, why in check_length(lines):
                yield path, number, what, why
            if folder in LAYERED_FOLDERS:
                for number, what, why in check_layered_file(path, lines):
                    yield path, number, what, why


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent,
                        help="the source tree (default: this one)")
    root = parser.parse_args().root
    num_files = num_violations = 0
    for path, number, what, why in check_tree(root):
        if number is None:
            num_files += 1
            continue
        num_violations += 1
        print(f"{path}:{number}: {what}: {why}")
    if num_files == 0:
        print(f"{root}: no source files under include/stof, src or cli; is --root right?", file=sys.stderr)
        return 2
    print(f"check_layers: {num_files} files, {num_violations} violations")
    return 1 if num_violations else 0


if __name__ == "__main__":
    sys.exit(main())
