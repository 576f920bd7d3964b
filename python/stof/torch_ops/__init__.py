"""stof as operators of torch: torch.compile, fake tensors, autocast and refused gradients.

``stof.attention``, ``stof.varlen_attention`` and ``Plan.run`` come here by themselves where torch
records operators; nobody needs to call these functions. What they record:

- ``torch.ops.stof.run``: a plan that exists already;
- ``torch.ops.stof.attention`` and ``torch.ops.stof.varlen_attention``: the plan is looked up, or
  made, when the operator runs, so that one graph serves all shapes;
- ``torch.ops.stof.mask_from_values``: a mask whose tables are results of the graph.
"""

from .autocast import lowered
from .calls import attention, run, varlen_attention

__all__ = ["attention", "lowered", "run", "varlen_attention"]
