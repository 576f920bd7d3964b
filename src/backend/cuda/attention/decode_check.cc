#include "backend/cuda/attention/decode_check.h"

#include "backend/cpu/attention/check.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

bool missing(const TensorView& tensor) { return !tensor.defined() && tensor.shape.rank() == 0; }

void check_aligned(const char* name, const TensorView& tensor) {
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
  for (int i = 0; i < 3; ++i) aligned &= tensor.shape[i] == 1 || tensor.strides[i] % 8 == 0;
  STOF_CHECK(aligned, kUnsupported,
             "{}: the GPU kernels move 16 bytes at a time: expected an address divisible by 16 and "
             "strides in multiples of 8 elements, got {} at {}; make it contiguous",
             name, tensor.describe(), tensor.data);
}

/// An int32 operand whose last stride is 1; `rows` x `columns` or more, or [rows] for columns = 0.
void check_integers(const char* name, const TensorView& tensor, bool wanted, const char* option,
                    std::int64_t rows, std::int64_t columns) {
  if (!wanted) {
    STOF_CHECK(missing(tensor), kInvalidArgument,
               "{}: expected no tensor because the plan's problem has no {}, got {}", name, option,
               tensor.describe());
    return;
  }
  const int rank = columns > 0 ? 2 : 1;
  const std::string shape =
      columns > 0 ? fmt::format("[{}, {} or more]", rows, columns) : fmt::format("[{}]", rows);
  STOF_CHECK(!missing(tensor), kInvalidArgument, "{}: expected int32{}, got no tensor", name,
             shape);
  STOF_CHECK(tensor.dtype == DType::kInt32 && tensor.shape.rank() == rank &&
                 tensor.shape[0] == rows && (rank == 1 || tensor.shape[1] >= columns) &&
                 tensor.defined() && tensor.is_aligned() &&
                 (tensor.shape[rank - 1] == 1 || tensor.strides[rank - 1] == 1),
             kInvalidArgument, "{}: expected int32{} with a last stride of 1, got {}", name, shape,
             tensor.describe());
}

}  // namespace

void DecodeProblem::validate() const {
  AttentionProblem common;
  common.batch = batch, common.num_heads_q = num_heads_q, common.num_heads_kv = num_heads_kv;
  common.seq_q = seq_q, common.seq_kv = max_seq_kv;
  common.head_dim_qk = head_dim_qk, common.head_dim_v = head_dim_v;
  common.dtype = dtype, common.scale = scale, common.softcap = softcap;
  common.position_bias = position_bias;
  common.validate();
  STOF_CHECK(dtype == DType::kBFloat16 || dtype == DType::kFloat16, kUnsupported,
             "dtype: the decode kernel takes bfloat16 and float16, got {}", to_string(dtype));
  STOF_CHECK(batch >= 1, kInvalidArgument, "batch: expected 1 and more, got {}", batch);
  STOF_CHECK(seq_q >= 1 && seq_q <= 16, kUnsupported,
             "seq_q: the decode kernel takes 1 to 16 new tokens, got {}; use "
             "cuda::AttentionPlan for more",
             seq_q);
  STOF_CHECK(max_seq_kv >= 1 && max_seq_kv < (std::int64_t{1} << 31) - 64, kUnsupported,
             "max_seq_kv: the decode kernel takes 1 to 2^31 - 65 keys, got {}", max_seq_kv);
  for (const auto& [field, head_dim] :
       {std::pair{"head_dim_qk", head_dim_qk}, std::pair{"head_dim_v", head_dim_v}})
    STOF_CHECK(head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0, kUnsupported,
               "{}: the decode kernel takes multiples of 8 from 8 to 256, got {}", field, head_dim);
  STOF_CHECK(batch <= 0x7fffffff / (num_heads_q * seq_q), kUnsupported,
             "batch: the decode kernel takes 2^31 - 1 query rows in all, got {} x {} heads x {} "
             "queries",
             batch, num_heads_q, seq_q);
  STOF_CHECK(page_size >= 0 && page_size <= 256 && page_size % 16 == 0, kUnsupported,
             "page_size: the decode kernel takes multiples of 16 up to 256 (0: contiguous), got {}",
             page_size);
  for (const auto& [field, reach] :
       {std::pair{"window_left", window_left}, std::pair{"window_right", window_right}})
    STOF_CHECK(!reach || (*reach >= 0 && *reach < 0x7fffffff), kInvalidArgument,
               "{}: expected 0 to 2^31 - 2 keys (unset: all), got {}", field, *reach);
  STOF_CHECK(sink_tokens >= 0 && sink_tokens < 0x7fffffff, kInvalidArgument,
             "sink_tokens: expected 0 to 2^31 - 2, got {}", sink_tokens);
}

std::string DecodeProblem::describe() const {
  const auto side = [](const std::optional<std::int64_t>& reach) {
    return reach ? std::to_string(*reach) : std::string("all");
  };
  return fmt::format(
      "decode {} batch {} heads {}/{} seq_q {} max_seq_kv {} head_dim {}/{} window {}/{}{}{}{}{}{}"
      "{}{}{}{}",
      to_string(dtype), batch, num_heads_q, num_heads_kv, seq_q, max_seq_kv, head_dim_qk,
      head_dim_v, side(window_left), side(window_right),
      sink_tokens > 0 ? fmt::format(" sink_tokens {}", sink_tokens) : "",
      page_size > 0 ? fmt::format(" page_size {}", page_size) : "", lengths ? " lengths" : "",
      softcap > 0 ? fmt::format(" softcap {}", softcap) : "", alibi ? " alibi" : "",
      position_bias.num_buckets > 0 ? fmt::format(" position_bias {}", position_bias.num_buckets)
                                    : "",
      sink ? " sink" : "", return_lse ? " lse" : "", early_keys ? " early_keys" : "");
}

void check_decode_tensors(const DecodeProblem& p, const DecodeTensors& t) {
  // The same rules as attention on any backend, on the cache's shape where it is paged.
  AttentionProblem common;
  common.batch = p.batch, common.num_heads_q = p.num_heads_q, common.num_heads_kv = p.num_heads_kv;
  common.seq_q = p.seq_q, common.seq_kv = p.max_seq_kv;
  common.head_dim_qk = p.head_dim_qk, common.head_dim_v = p.head_dim_v;
  common.dtype = p.dtype, common.alibi = p.alibi, common.sink = p.sink;
  common.position_bias = p.position_bias;
  common.return_lse = p.return_lse;
  cpu::ExpectedShapes shapes = cpu::dense_shapes(common);
  if (p.page_size > 0) {
    // As many pages as the caller has.
    const std::int64_t pages = t.k.shape.rank() == 4 ? t.k.shape[0] : 0;
    shapes.k = {pages, p.num_heads_kv, p.page_size, p.head_dim_qk};
    shapes.v = {pages, p.num_heads_kv, p.page_size, p.head_dim_v};
  }
  AttentionTensors tensors;
  tensors.q = t.q, tensors.k = t.k, tensors.v = t.v, tensors.out = t.out, tensors.lse = t.lse;
  tensors.alibi_slopes = t.alibi_slopes, tensors.sink = t.sink;
  tensors.position_bias = t.position_bias;
  cpu::check_tensors(common, shapes, tensors);
  check_aligned("q", t.q);
  check_aligned("k", t.k);
  check_aligned("v", t.v);
  check_aligned("out", t.out);
  for (const auto& [name, values] :
       {std::pair{"lse", TensorView(t.lse)}, std::pair{"alibi_slopes", t.alibi_slopes},
        std::pair{"sink", t.sink}, std::pair{"position_bias", t.position_bias}})
    STOF_CHECK(!values.defined() || values.is_contiguous(), kUnsupported,
               "{}: the decode kernel takes a contiguous tensor, got {}; make it contiguous", name,
               values.describe());
  check_integers("lengths", t.lengths, p.lengths, "lengths", p.batch, 0);
  check_integers("page_table", t.page_table, p.page_size > 0, "page_size", p.batch,
                 p.page_size > 0 ? (p.max_seq_kv + p.page_size - 1) / p.page_size : 0);
}

}  // namespace stof::cuda
