"""BERT on long documents under a sparse mask: windows, and a first token that sees everything.

Needs torch and transformers. The weights are random, so that nothing is downloaded. A trained model:

    model = AutoModel.from_pretrained("FOLDER_OF_A_BERT_WITH_4096_POSITIONS", attn_implementation="stof").eval()
"""

import time

import torch
from transformers import BertConfig, BertModel

import stof
import stof.transformers

TOKENS = 4096
config = BertConfig(
    vocab_size=1000,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=TOKENS,
)

stof.transformers.register()
torch.manual_seed(0)
model = BertModel._from_config(config, attn_implementation="stof").eval()

# Two documents of different lengths; the second is padded.
lengths = torch.tensor([TOKENS, 3000])
ids = torch.randint(5, config.vocab_size, (2, TOKENS))
attention_mask = (torch.arange(TOKENS) < lengths[:, None]).long()

sparse = stof.masks.window(128, 128) | stof.masks.global_(rows=1, cols=1)
print(sparse.draw(TOKENS, max_cells=16))
print(f"{sparse.stats(TOKENS)['element_density']:.1%} of all pairs are visible")


def run():
    start = time.perf_counter()
    with torch.inference_mode():
        states = model(ids, attention_mask=attention_mask).last_hidden_state
    return states, time.perf_counter() - start


run()  # plans
dense, dense_seconds = run()
model.config.stof_mask = (
    sparse  # joined with the padding; text such as "window(128, 128)" will do too
)
run()
states, seconds = run()
print(f"every pair: {dense_seconds * 1e3:.0f} ms, sparse: {seconds * 1e3:.0f} ms")

# A token's state is computed from tokens within 128 positions a layer, and the first one, through which
# a change reaches all others, weakly.
changed = ids.clone()
changed[0, 1000] = 7
with torch.inference_mode():
    others = model(changed, attention_mask=attention_mask).last_hidden_state
change = (others - states)[0].abs().amax(-1)
print(
    f"changing token 1000 changes the states near it by up to {change[744:1257].max():.1e}, those further "
    f"away by up to {torch.cat([change[:744], change[1257:]]).max():.1e}"
)
