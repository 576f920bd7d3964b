"""A LLaMA that looks back over a window and the first few tokens (StreamingLLM), generating text.

Needs torch and transformers. The weights are random, so that nothing is downloaded. A trained model:

    model = AutoModelForCausalLM.from_pretrained(
        "HuggingFaceTB/SmolLM2-135M", attn_implementation="stof"
    ).eval()
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import stof
import stof.transformers

config = dict(
    vocab_size=1000,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=256,
    initializer_range=0.1,
    pad_token_id=0,
    eos_token_id=None,
)


def model_with(attention):
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(
        LlamaConfig(**config), attn_implementation=attention
    ).eval()


stof.transformers.register()
model = model_with("stof")

# Prompts of different lengths, padded on the left.
prompts = torch.randint(5, config["vocab_size"], (2, 600))
attention_mask = torch.ones_like(prompts)
attention_mask[1, :200] = 0
prompts[attention_mask == 0] = 0


def generate():
    tokens = model.generate(
        prompts, attention_mask=attention_mask, max_new_tokens=16, do_sample=False
    )
    return tokens[:, prompts.shape[1] :]


plain = generate()
# The model's own mask stays: & keeps it causal, and the padding hidden.
window = stof.masks.streaming(num_sinks=4, w=256)
with stof.transformers.sparse_mask(window):
    windowed = generate()

print(f"row 599 of the mask: {window.keys(599, 600)[:6]} ... {window.keys(599, 600)[-1]}")
for name, tokens in (("every token before", plain), ("4 + 256 tokens back", windowed)):
    print(f"{name}: {tokens[0].tolist()}")

# The same as the attention that comes with transformers, given the window as an array of all pairs.
eager = model_with("eager")
visible = torch.from_numpy(window.to_dense(600, batch=2)) & attention_mask.bool()[:, None, None, :]
additive = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
with torch.inference_mode(), stof.transformers.sparse_mask(window):
    ours = model(prompts, attention_mask=attention_mask, position_ids=positions).logits
    theirs = eager(prompts, attention_mask=additive, position_ids=positions).logits
tokens = attention_mask.bool()
print(f"largest difference of the logits: {float((ours - theirs)[tokens].abs().max()):.1e}")
