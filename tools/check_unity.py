#!/usr/bin/env python3
"""Checks that the sources of a folder in cmake/unity_folders.txt can be compiled as one.

What a source of those keeps to itself, in its anonymous namespace or as static, must have another name than what its
neighbours in the folder keep to themselves. Aliases may be repeated word for word, and functions may share a
name where their parameters tell them apart.

usage: tools/check_unity.py [ROOT]
"""
import collections
import pathlib
import re
import sys

LIST = "cmake/unity_folders.txt"
# Sources with compile options of their own, which stay alone: by name, and as CMake is told.
ALONE = re.compile(r"_(avx2|avx512)\.cc$")
OWN_OPTIONS = re.compile(r"set_source_files_properties\(([^()]*)\bPROPERTIES\s+COMPILE_OPTIONS")

TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)\b(?! *\w+ *[({=])")
ALIAS = re.compile(r"using (\w+) = .*;")
NAMED = re.compile(r"[\w:<>,*&\[\] ]*?[ *&](\w+)(\(|\{|\[| = |;)")
TEST = re.compile(r"(TEST|TEST_F|TEST_P|INSTANTIATE_\w+|RC_\w+)\(")


def parameters(text):
    """(types, how many have no default) of the parameter list that starts at text[0] == "("."""
    depth, parts = 0, [""]
    for character in text:
        if character in "([{<":
            depth += 1
            if depth == 1:
                continue
        elif character in ")]}>":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            parts.append("")
            continue
        parts[-1] += character
    parts = [" ".join(part.split()) for part in parts if part.strip()]
    required = sum("=" not in part for part in parts)
    return [re.sub(r"(?<=[ *&])\w+$", "", part.partition(" =")[0]).strip() for part in parts], required


def internal_names(text):
    """(name, line, kind) for each name with internal linkage; kind is an alias' text, a function's
    parameters(), or None. Relies on clang-format: what starts a line is at namespace scope."""
    anonymous, offset = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        start, offset = offset, offset + len(line) + 1
        if line == "namespace {":
            anonymous = True
        elif line == "}  // namespace":
            anonymous = False
        if not re.match(r"\w", line) or line.startswith(("namespace", "extern", "template", "case ")):
            continue
        if not anonymous and not line.startswith(("static ", "constexpr ", "const ", "using ")):
            continue
        if TEST.match(line) or line.startswith("static_assert"):
            continue
        if found := ALIAS.match(line):
            yield found[1], number, line
        elif line.startswith("using "):
            continue
        elif found := TYPE.match(line):
            if not line.endswith(";") or "{" in line:  # a declaration alone may be repeated
                yield found[1], number, None
        elif found := NAMED.match(line):
            kind = parameters(text[start + found.start(2):]) if found[2] == "(" else None
            if anonymous or kind is None or line.startswith("static "):
                yield found[1], number, kind


def clash(a, b):
    if isinstance(a, tuple) and isinstance(b, tuple):
        (types, required), (other_types, other_required) = a, b
        counts = range(max(required, other_required), min(len(types), len(other_types)) + 1)
        return any(types[:count] == other_types[:count] for count in counts)
    return a is None or a != b


def sources_with_options(root):
    """Names of the sources that a CMakeLists.txt gives compile options of their own."""
    texts = [path.read_text(encoding="utf-8") for path in root.glob("*/CMakeLists.txt")]
    return {pathlib.PurePath(name).name for text in texts for names in OWN_OPTIONS.findall(text)
            for name in names.split() if name.endswith(".cc")}


def check(root):
    """Messages, one for each name that two sources of a folder keep to themselves."""
    messages, alone = [], sources_with_options(root)
    for folder in (root / LIST).read_text(encoding="utf-8").splitlines():
        if folder.startswith("#"):
            continue
        if not (root / folder).is_dir():
            messages.append(f"{LIST}: expected folders, got {folder}, which is none")
        seen = collections.defaultdict(list)
        for path in sorted((root / folder).glob("*.cc")):
            if ALONE.search(path.name) or path.name in alone:
                continue
            for name, number, kind in internal_names(path.read_text(encoding="utf-8")):
                for other, other_number, other_kind in seen[name]:
                    if other != path and clash(kind, other_kind):
                        messages.append(
                            f"{path.relative_to(root)}:{number}: expected a name of its own, got {name}, which "
                            f"{other.relative_to(root)}:{other_number} has too; both are compiled as one (STOF_UNITY): "
                            "rename one, or share it in a header")
                        break
                seen[name].append((path, number, kind))
    return messages


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    messages = check(root.resolve())
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
