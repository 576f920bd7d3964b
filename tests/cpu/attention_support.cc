#include "cpu/attention_support.h"

#include <algorithm>

#include "cpu/tolerance.h"
#include "stof/error.h"

namespace stof::cpu {

void expect_right_everywhere(const mask::Mask& mask, Operands& operands) {
  expect_right_everywhere(mask, operands, choose_config(operands.problem));
}

void expect_right_everywhere(const mask::Mask& mask, Operands& operands,
                             const plan::PlanConfig& config) {
  const Result expected = reference_of(mask, operands);
  const AttentionPlan plan = plan_attention_with(operands.problem, mask, config);
  plan.mask_plan().validate();
  const auto inputs = {operands.q.bytes(), operands.k.bytes(), operands.v.bytes()};

  const auto check = [&](const std::string& what, const std::function<void()>& run) {
    SCOPED_TRACE(what + ": " + plan.problem().describe());
    operands.out.poison();
    operands.lse.poison();
    run();
    EXPECT_TRUE(
        close_to(operands.out.values(), expected.out, tolerance_of(operands.problem.dtype)));
    EXPECT_TRUE(operands.out.guards_intact());
    if (operands.lse.defined()) {
      EXPECT_TRUE(close_to(operands.lse.values(), expected.lse, tolerance_of(DType::kFloat32)));
      EXPECT_TRUE(operands.lse.guards_intact());
    }
    EXPECT_TRUE(std::equal(inputs.begin(), inputs.end(),
                           std::initializer_list<std::vector<std::uint8_t>>{
                               operands.q.bytes(), operands.k.bytes(), operands.v.bytes()}
                               .begin()))
        << "an input was changed";
  };

  check("interpreter", [&] { attention_interpret(plan, operands.tensors()); });
  for (const CpuIsa isa : supported_isas()) {
    std::vector<std::uint8_t> first_out, first_lse;
    for (const int threads : {1, 2, 3, 4, 1}) {
      check(to_string(isa),
            [&] { run_attention_with(plan, operands.tensors(), RunOptions{threads}, isa); });
      if (first_out.empty()) {
        first_out = operands.out.bytes();
        first_lse = operands.lse.bytes();
      }
      EXPECT_TRUE(operands.out.bytes() == first_out && operands.lse.bytes() == first_lse)
          << to_string(isa) << ": " << threads << " threads changed the bits";
    }
  }
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace stof::cpu
