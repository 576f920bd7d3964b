// A small program of somebody else's: attention under a mask, through the installed library alone.

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "stof/attention.h"
#include "stof/error.h"

namespace {

// Zero queries weigh every visible key the same, and value row k holds k in every element: query q
// must get the mean of the keys it sees.
bool attention_averages_visible_keys() {
  stof::AttentionProblem problem;
  problem.seq_q = problem.seq_kv = 4;
  problem.head_dim_qk = problem.head_dim_v = 8;
  stof::Tensor q(stof::DType::kFloat32, {1, 1, 4, 8});
  stof::Tensor k = q, v = q, out = q;
  for (std::int64_t i = 0; i < v.size(); ++i) v.as<float>()[i] = static_cast<float>(i / 8);

  const auto plan = stof::plan_attention(problem, stof::mask::causal() & stof::mask::window(2, 0));
  std::printf("%s\n", plan.describe().c_str());
  stof::AttentionTensors tensors;
  tensors.q = q.view();
  tensors.k = k.view();
  tensors.v = v.view();
  tensors.out = out.view();
  stof::run_attention(plan, tensors);

  const float expected[] = {0.0f, 0.5f, 1.0f, 2.0f};
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const float got = out.as<float>()[i];
    if (!(std::abs(got - expected[i / 8]) < 1e-6f)) {
      std::printf("query %d: expected %g, got %g\n", static_cast<int>(i / 8), expected[i / 8], got);
      return false;
    }
  }
  return true;
}

// An exception thrown in the library is caught here by type.
bool mistakes_are_reported() {
  try {
    stof::mask::chunked(0);
  } catch (const stof::Error& error) {
    std::printf("%s: %s\n", stof::to_string(error.code()), error.what());
    return error.code() == stof::ErrorCode::kInvalidArgument;
  }
  return false;
}

}  // namespace

int main() { return attention_averages_visible_keys() && mistakes_are_reported() ? 0 : 1; }
