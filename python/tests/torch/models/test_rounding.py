"""Every family of models through stof.load(), beside transformers in the same type."""

import pytest
from comparing import DEVICE, ON_GPU
from families import FAMILIES, errors, write


@pytest.mark.parametrize("name", FAMILIES)
def test_errors_are_those_of_rounding(name, tmp_path):
    """Of float32 at most 1e-4; of narrow types at most 1.5 times transformers' own."""
    on_gpu = ON_GPU and FAMILIES[name].gpu
    write(tmp_path, FAMILIES[name])
    for dtype in ("bfloat16", "float16") if on_gpu else ("float32",):
        for error in errors(tmp_path, name, dtype, DEVICE if on_gpu else "cpu"):
            print(name, dtype, error)
            assert error.is_good(dtype), (dtype, error)
