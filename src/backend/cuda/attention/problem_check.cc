#include "backend/cuda/attention/problem_check.h"

#include <utility>

#include "core/check.h"

namespace stof::cuda {

void check_problem(const AttentionProblem& problem) {
  problem.validate();
  STOF_CHECK(problem.dtype == DType::kBFloat16 || problem.dtype == DType::kFloat16, kUnsupported,
             "dtype: the GPU kernels take bfloat16 and float16, got {}", to_string(problem.dtype));
  for (const auto& [field, head_dim] :
       {std::pair{"head_dim_qk", problem.head_dim_qk}, std::pair{"head_dim_v", problem.head_dim_v}})
    STOF_CHECK(head_dim >= 8 && head_dim <= 512 && head_dim % 8 == 0, kUnsupported,
               "{}: the GPU kernels take multiples of 8 from 8 to 512, got {}; use the CPU", field,
               head_dim);
  STOF_CHECK(!problem.scale || *problem.scale > 0, kUnsupported,
             "scale: the GPU kernels take positive scales, got {}", *problem.scale);
}

void check_dense(const AttentionProblem& problem) {
  check_problem(problem);
  for (const auto& [field, length] :
       {std::pair{"seq_q", problem.seq_q}, std::pair{"seq_kv", problem.seq_kv}})
    STOF_CHECK(length >= 1, kUnsupported,
               "{}: the GPU kernels take lengths of 1 and more, got {}; use the CPU", field,
               length);
}

void check_alignment(const TensorView& tensor, const char* name, int alignment) {
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % alignment == 0;
  for (int i = 0; i < 3; ++i)
    aligned &= tensor.shape[i] == 1 || tensor.strides[i] * 2 % alignment == 0;
  STOF_CHECK(aligned, kUnsupported,
             "{}: the plan is for addresses and strides divisible by {} bytes, got {}; make it "
             "contiguous or plan for a smaller alignment",
             name, alignment, tensor.describe());
}

void check_outputs(const AttentionTensors& t, int alignment) {
  check_alignment(t.out, "out", alignment);
  if (!t.lse.defined()) return;
  STOF_CHECK(TensorView(t.lse).is_contiguous(), kUnsupported,
             "lse: the GPU kernels write a contiguous tensor, got {}; make it contiguous",
             TensorView(t.lse).describe());
}

}  // namespace stof::cuda
