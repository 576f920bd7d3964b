"""FlexAttention's functions from stof: the import changes, the code stays.

Needs torch 2.6 or newer. Runs on the GPU if there is one, else on the CPU.
"""

import torch

from stof.compat.flex import and_masks, create_block_mask, flex_attention, to_stof_mask

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float16 if device == "cuda" else torch.float32
seq, heads = 300, 4

# Three documents packed into one sequence; each token sees the last 64 of its own.
document = torch.repeat_interleave(torch.arange(3), torch.tensor([120, 50, 130])).to(device)


def causal_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 64)


def same_document(b, h, q_idx, kv_idx):
    return document[q_idx] == document[kv_idx]


slopes = torch.exp2(-torch.arange(1, heads + 1, device=device) * 8.0 / heads)


def alibi(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)


block_mask = create_block_mask(
    and_masks(causal_window, same_document), None, None, seq, seq, device
)
q, k, v = (torch.randn(1, heads, seq, 64, device=device, dtype=dtype) for _ in range(3))
out = flex_attention(q, k, v, score_mod=alibi, block_mask=block_mask)

# What the functions became, and the same by plain matrices.
mask = to_stof_mask(block_mask)
print(mask)
print(mask.draw(seq, max_cells=30))
position = torch.arange(seq, device=device)
distance = position[:, None] - position
hidden = (distance < 0) | (distance >= 64) | (document[:, None] != document)
scores = q.float() @ k.float().transpose(-1, -2) / 8 - slopes[:, None, None] * distance
expected = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v.float()
print("largest difference:", float((out.float() - expected).abs().max()))
assert torch.allclose(out.float(), expected, atol=1e-2 if dtype == torch.float16 else 1e-4)

# Captured tensors may change in place: the next call sees two documents.
document[:170] = 0
assert not torch.equal(flex_attention(q, k, v, score_mod=alibi, block_mask=block_mask), out)
