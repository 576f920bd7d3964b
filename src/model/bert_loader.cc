#include "model/bert_loader.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace stof::model {

std::string BertLoader::find_prefix(const Checkpoint& checkpoint, const BertNames& names) {
  for (const std::string_view prefix : names.prefixes)
    if (checkpoint.find(fmt::format("{}{}", prefix, names.word_embeddings)) != nullptr)
      return std::string(prefix);
  return "";  // where that is wrong too, the first lookup names what is missing
}

TensorView BertLoader::tensor(const std::string& name, const Dims& shape) {
  const TensorView& view = checkpoint_.require(prefix_ + name, shape);
  STOF_CHECK(view.dtype == DType::kFloat32 || view.dtype == DType::kFloat16 ||
                 view.dtype == DType::kBFloat16,
             kUnsupported, "{}: tensor \"{}\": expected float32, float16 or bfloat16, got {}",
             checkpoint_.path(), prefix_ + name, to_string(view.dtype));
  if (view.dtype == DType::kFloat32 && view.is_aligned()) return view;
  converted_.push_back(Tensor::converted(view, DType::kFloat32));
  return std::as_const(converted_.back()).view();
}

BertWeights::Dense BertLoader::dense(const std::string& name, std::int64_t in, std::int64_t out,
                                     bool has_bias) {
  return {tensor(name + ".weight", {out, in}),
          has_bias ? tensor(name + ".bias", {out}) : TensorView{}};
}

BertWeights::Norm BertLoader::norm(const std::string& name, std::int64_t width, bool has_bias) {
  const bool early = checkpoint_.find(prefix_ + name + ".gamma") != nullptr;
  const TensorView gamma = tensor(name + (early ? ".gamma" : ".weight"), {width});
  if (has_bias) return {gamma, tensor(name + (early ? ".beta" : ".bias"), {width})};
  converted_.emplace_back(DType::kFloat32, Dims{width});
  std::ranges::fill(converted_.back().as<float>(), 0.f);
  return {gamma, std::as_const(converted_.back()).view()};
}

}  // namespace stof::model
