"""stof in Hugging Face transformers: ``attn_implementation="stof"``.

>>> import stof.transformers
>>> stof.transformers.register()
>>> model = AutoModel.from_pretrained(name, attn_implementation="stof").eval()

Masks stay expressions: no array of [batch, heads, queries, keys] is made. docs/python.md says
what is honoured and what is refused.
"""

try:
    import torch as _torch  # noqa: F401
    from transformers import AttentionMaskInterface as _needed  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"stof.transformers: expected torch and transformers 5 or newer, got: {error}; install them: "
        "pip install torch transformers"
    ) from None

from .host_mask import HostMask
from .registration import register
from .sparse import sparse_mask

__all__ = ["HostMask", "register", "sparse_mask"]
