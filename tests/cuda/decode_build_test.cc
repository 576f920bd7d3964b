// Representative decode kernels compile for every target without spills. Needs NVRTC, but neither a
// GPU nor a driver.

#include <gtest/gtest.h>

#include "backend/cuda/attention/decode_config.h"
#include "backend/cuda/device.h"
#include "jit/nvrtc.h"

namespace stof::cuda {
namespace {

struct Variant {
  int major, minor;
  std::int64_t head_dim_qk, head_dim_v, rows, page_size;
  bool lists, extras;  // softcap and ALiBi
  bool position_bias = false;
};

class DecodeKernelBuild : public testing::TestWithParam<Variant> {};

void expect_clean(const std::string& name, const std::string& text, const std::string& target) {
  const jit::ResourceReport report =
      jit::parse_resources(jit::Nvrtc::instance().compile(name, text, target).log);
  EXPECT_GT(report.registers, 0) << name;
  EXPECT_EQ(report.spill_bytes, 0) << name << " for " << target;
  EXPECT_EQ(report.stack_bytes, 0) << name << " for " << target;
}

TEST_P(DecodeKernelBuild, CompilesWithoutSpills) {
  const Variant& v = GetParam();
  DecodeProblem p;
  p.num_heads_q = v.rows;
  p.max_seq_kv = 4096;
  p.head_dim_qk = v.head_dim_qk;
  p.head_dim_v = v.head_dim_v;
  p.page_size = v.page_size;
  p.dtype = v.extras ? DType::kFloat16 : DType::kBFloat16;
  p.softcap = v.extras ? 20.0f : 0.0f;
  p.alibi = v.extras;
  if (v.position_bias) p.position_bias = {32, false, 128};
  codegen::DecodeConfig config = decode_config(p, v.lists, v.major, v.minor, 132);
  DeviceFacts gpu;
  gpu.major = v.major, gpu.minor = v.minor;
  const std::string target = gpu.target();
  for (const bool merges : {true, false}) {
    config.merges = merges;
    expect_clean(config.name(), codegen::emit_decode(config), target);
  }
  expect_clean(config.name() + " combine", codegen::emit_decode_combine(config), target);
}

INSTANTIATE_TEST_SUITE_P(Decode, DecodeKernelBuild,
                         testing::Values(Variant{9, 0, 128, 128, 4, 0, false, false, true},
                                         Variant{9, 0, 256, 256, 64, 16, true, true},
                                         Variant{9, 0, 128, 128, 128, 64, true, true},
                                         Variant{8, 0, 72, 40, 20, 0, false, true, true},
                                         Variant{8, 9, 256, 256, 8, 32, true, false}),
                         [](const auto& variant) {
                           return "sm_" + std::to_string(variant.param.major) +
                                  std::to_string(variant.param.minor) + "_qk" +
                                  std::to_string(variant.param.head_dim_qk) + "_rows" +
                                  std::to_string(variant.param.rows);
                         });

}  // namespace
}  // namespace stof::cuda
