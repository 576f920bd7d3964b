#pragma once
// The structs of stof/stof.h as stof's own values; throws InvalidArgument naming the field.

#include <cstdint>
#include <vector>

#include "stof/attention.h"
#include "stof/mask.h"
#include "stof/stof.h"

namespace stof::capi {

/// `name` is the struct that has the field.
DType dtype_of(std::int32_t value, const char* name);
/// 0 or 1.
bool flag_of(std::int32_t value, const char* name);
mask::Alignment alignment_of(std::int32_t value, const char* name);
mask::ScoreShape shape_of(const stof_score_shape& shape);
TensorView tensor_of(const stof_tensor* tensor, const char* name);
/// A tensor that may be absent; null: one without data.
TensorView optional_of(const stof_tensor* tensor, const char* name);
MutableTensorView output_of(const stof_tensor* tensor, const char* name);
AttentionProblem problem_of(const stof_attention_problem* problem);
/// batch, seq_q and seq_kv are left to the cumulative lengths.
AttentionProblem varlen_problem_of(const stof_attention_problem* problem);
std::vector<std::int64_t> lengths_of(const std::int64_t* cu_seqlens, std::int64_t num_sequences,
                                     const char* name);
AttentionTensors tensors_of(const stof_attention_tensors* tensors);

}  // namespace stof::capi
