#include "backend/cuda/attention/packed_attention.h"

#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/problem_check.h"
#include "backend/cuda/upload.h"

namespace stof::cuda {
namespace {

KernelTarget target_of(const Device& device) {
  const DeviceFacts& gpu = device.facts();
  return {gpu.major * 10 + gpu.minor, gpu.num_sms, 16, gpu.name};
}

const AttentionProblem& checked(const AttentionProblem& problem) {
  check_problem(problem);
  return problem;
}

}  // namespace

PackedAttention::PackedAttention(const AttentionProblem& problem, const mask::Mask& mask,
                                 const Device& device)
    : problem_(checked(problem)),
      device_(device),
      batches_(problem, mask, target_of(device)),
      passes_(batches_.configs().size()) {
  problem_.batch = 1;
}

void PackedAttention::prepare(const std::vector<std::int64_t>& offsets, CUstream stream) {
  if (offsets == offsets_) return;
  offsets_.clear();  // until all of it has gone well
  batch_ = batches_.batch_of(offsets);
  std::optional<DeviceBlockwise>& pass = passes_[batch_.kernel];
  if (pass) {
    pass->replace(batch_.plan, stream);
  } else {
    PlanFacts facts;
    pass.emplace(batches_.configs()[batch_.kernel], 1, batch_.plan, device_, &facts);
  }
  refill(&sequences_, batch_.sequences, "the batch's sequences", stream);
  problem_.seq_q = problem_.seq_kv = offsets.back();
  offsets_ = offsets;
}

void PackedAttention::run(const AttentionTensors& tensors, CUstream stream) const {
  AttentionTensors t = tensors;
  t.q = unpacked_rows(t.q);
  t.k = unpacked_rows(t.k);
  t.v = unpacked_rows(t.v);
  t.out = unpacked_rows(t.out);
  passes_[batch_.kernel]->launch(problem_, t, 0, sequences_.address(), stream);
}

}  // namespace stof::cuda
