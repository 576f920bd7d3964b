#include "bench/gpu/stacks_run.h"

#include <memory>
#include <random>
#include <utility>

#include "exec/cpu_session.h"
#include "stof/safetensors.h"

namespace stof::bench {

Texts::Texts(const StackModel& model, const Shape& shape, const mask::Mask& mask, DType dtype) {
  const Dims rows = {shape.batch * shape.seq};
  for (std::int64_t row = 0; row < rows[0]; ++row)
    positions.push_back(static_cast<std::int32_t>(row % shape.seq));
  for (int part = 0; part < model.num_parts(); ++part) {
    Tensor drawn(DType::kBFloat16, {rows[0], model.hidden});
    std::mt19937 random(static_cast<unsigned>(2 + part));
    std::normal_distribution<float> normal;
    for (BFloat16& value : drawn.as<BFloat16>()) value = BFloat16(normal(random));
    x.push_back(Tensor::converted(std::as_const(drawn).view(), dtype));
    exec::Batch& batch = batches.emplace_back();
    for (std::int64_t b = 0; b <= shape.batch; ++b) batch.offsets.push_back(b * shape.seq);
    std::vector<mask::Mask> masks = bench::part_masks(model, mask, part);
    batch.mask = masks[0];
    batch.more_masks.assign(masks.begin() + 1, masks.end());
    if (model.design == bench::Design::kLlama)
      batch.inputs.push_back({"positions", {positions.data(), DType::kInt32, rows}});
  }
  for (std::size_t part = 0; part < x.size(); ++part)
    batches[part].inputs.push_back({"x", std::as_const(x[part]).view()});
}

Stacks::Stacks(StackModel model, const std::string& mask, DType dtype)
    : model_(std::move(model)),
      mask_name_(mask.empty() ? model_.mask : mask),
      mask_(bench::stacks_mask(mask_name_)),
      dtype_(dtype) {
  for (int part = 0; part < model_.num_parts(); ++part) {
    graphs_.push_back(graph_of(part)(8));
    weights_.emplace_back(graphs_.back(), part);
  }
}

void Stacks::save_weights(const std::string& path) const {
  std::vector<NamedTensor> tensors;
  for (int part = 0; part < model_.num_parts(); ++part)
    for (const auto& [id, view] : weights(part))
      tensors.push_back({model_.prefix(part) + graph(part).value(id).name, view});
  save_safetensors(path, tensors);
}

Tensor Stacks::cpu_states(const Shape& shape) const {
  const Texts texts(model_, shape, mask_, dtype_);
  const auto states = std::make_shared<exec::CpuStates>();
  Tensor result;
  for (int part = 0; part < model_.num_parts(); ++part) {
    exec::CpuSession session(
        graph_of(part), std::make_shared<exec::CpuWeights>(graph(part), weights(part)), {}, states);
    result = session.run(texts.batches[static_cast<std::size_t>(part)]);
  }
  return result;
}

}  // namespace stof::bench
