"""What torch.autocast does to the operands of an attention."""

from __future__ import annotations

import torch


def lowered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q, k and v in autocast's element type where it is on for their device, as
    scaled_dot_product_attention has them; float64 and everything that is no float stays."""
    device = q.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    lowers = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(x.to(dtype) if x.dtype in lowers else x for x in (q, k, v))
