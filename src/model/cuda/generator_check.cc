#include "model/cuda/generator_check.h"

#include "core/check.h"

namespace stof::model {

void check_generator(const graph::Graph& graph, DType dtype) {
  STOF_CHECK(dtype == DType::kFloat16 || dtype == DType::kBFloat16, kUnsupported,
             "dtype: on a GPU generators compute in float16 or bfloat16, got {}", to_string(dtype));
  for (const graph::Operator& op : graph.operators()) {
    if (op.op != graph::Op::kMatmul) continue;
    const graph::Value& weight = graph.value(op.inputs[1]);
    STOF_CHECK(weight.shape[0] % 8 == 0 && weight.shape[1] % 8 == 0, kUnsupported,
               "weight \"{}\": GPU generators take sizes in multiples of 8, got {}; use the CPU",
               weight.name, weight.shape.to_string());
  }
}

}  // namespace stof::model
