"""A mask of one's own, looked at before it is used: text, numbers and a picture.

    python examples/custom_mask.py [PICTURE.png]

Three documents are packed one after the other. Within each, tokens see a window to the left and the
document's first token; the first four tokens of all are instructions that everybody sees. Needs stof
alone.
"""

import sys

from stof import masks

LENGTHS = [40, 56, 32]
SEQ = sum(LENGTHS)

starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
first_tokens = masks.global_tokens(starts, rows=False) & masks.document(LENGTHS)
local = masks.window(12, 0) & masks.document(LENGTHS)
mask = masks.causal() & (local | first_tokens | masks.prefix(4))

print(mask)
print()
print(mask.draw(SEQ, max_cells=32))
row = 70
print(f"query {row} sees {mask.keys(row, SEQ)}")
stats = mask.stats(SEQ)
print(f"{stats['visible_pairs']} of {SEQ * SEQ} pairs, {stats['element_density']:.1%}")

picture = sys.argv[1] if len(sys.argv) > 1 else "mask.png"
with open(picture, "wb") as file:
    file.write(mask.png(SEQ, title="packed documents"))
print(f"drawn in {picture}")
