#include "gpu/random_attention.h"

namespace stof::check {

AttentionProblem random_problem(Draw& draw) {
  AttentionProblem p;
  p.batch = draw.between(1, 3);
  p.num_heads_kv = draw.between(1, 3);
  p.num_heads_q = p.num_heads_kv * draw.one_of({1, 2, 3, 4});
  p.seq_q = draw.one_of<std::int64_t>({1, 64, 127, 128, 129, 200, 256, 384, 1025});
  p.seq_kv = draw.between(0, 2) ? p.seq_q : draw.one_of<std::int64_t>({1, 63, 137, 320, 1000});
  p.head_dim_qk = draw.one_of<std::int64_t>({8, 16, 32, 64, 80, 96, 128, 192, 256, 320, 512});
  p.head_dim_v = draw.between(0, 3) ? p.head_dim_qk : draw.one_of<std::int64_t>({40, 64, 128});
  p.dtype = draw.between(0, 1) ? DType::kBFloat16 : DType::kFloat16;
  p.alignment = draw.between(0, 1) ? mask::Alignment::kTopLeft : mask::Alignment::kBottomRight;
  if (draw.between(0, 3) == 0) p.softcap = 20;
  if (draw.between(0, 3) == 0) p.scale = 0.2f;
  p.return_lse = true;
  return p;
}

AttentionProblem small_problem(Draw& draw) {
  AttentionProblem p = random_problem(draw);
  struct Kind {
    std::int64_t qk, v;
    DType dtype;
  };
  const Kind kind = draw.one_of<Kind>({{64, 64, DType::kBFloat16},
                                       {64, 64, DType::kBFloat16},
                                       {128, 128, DType::kBFloat16},
                                       {128, 128, DType::kBFloat16},
                                       {80, 40, DType::kFloat16},
                                       {192, 128, DType::kFloat16}});
  p.head_dim_qk = kind.qk;
  p.head_dim_v = kind.v;
  p.dtype = kind.dtype;
  p.softcap = 0;
  p.batch = draw.between(1, 2);
  p.num_heads_kv = draw.between(1, 2);
  p.num_heads_q = p.num_heads_kv * draw.one_of({1, 2, 3});
  p.seq_q = draw.one_of<std::int64_t>({1, 64, 127, 129, 200, 256, 384, 512});
  p.seq_kv = draw.between(0, 2) ? p.seq_q : draw.one_of<std::int64_t>({1, 63, 137, 320, 700});
  return p;
}

PositionBias random_buckets(Draw& draw) {
  PositionBias rule;
  rule.bidirectional = draw.between(0, 1) == 1;
  rule.num_buckets = 2 * draw.between(2, 24);
  rule.max_distance = rule.num_buckets + draw.one_of<std::int64_t>({1, 30, 128, 5000});
  return rule;
}

mask::Mask random_mask(Draw& draw, const AttentionProblem& p) {
  using namespace stof::mask;
  switch (draw.between(0, 11)) {
    case 0:
      return all();
    case 1:
      return causal();
    case 2:
      return window(draw.between(0, 80), draw.between(0, 80));
    case 3:
      return dilated(100, draw.one_of({2, 3, 4}));
    case 4:
      return causal() & strided(20, draw.one_of({8, 32, 64, 128}));
    case 5:
      return window(30, 30) | global(5, 70);
    case 6:
      return random_blocks_rate(64, 0.4, 7, draw.between(0, 1) == 1);
    case 7:
      return random_elements(0.2, 11);
    case 8:
      return document({p.seq_kv / 3, 5, 0, p.seq_kv / 2}) & causal();
    case 9: {
      std::vector<Mask> heads;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        heads.push_back(h % 2 ? causal() : window(h * 10, 3));
      return per_head(heads);
    }
    case 10: {
      std::vector<std::int64_t> lengths;
      for (std::int64_t b = 0; b < p.batch; ++b) lengths.push_back(p.seq_kv / (b + 1));
      return key_lengths(lengths);
    }
    default:
      return none();
  }
}

}  // namespace stof::check
