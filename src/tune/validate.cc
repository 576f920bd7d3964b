#include "tune/validate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "backend/cpu/graph/interpret.h"
#include "core/check.h"
#include "core/hash.h"
#include "tune/random_values.h"

namespace stof::tune {
namespace {

using graph::Graph;
using graph::ValueId;
using Contents = std::map<ValueId, Tensor>;

constexpr std::size_t kGuardBytes = 512;
constexpr std::byte kGuardByte{0xA5};
/// Rows that the interpreter computes at most: a second for BERT-base's widest product.
constexpr std::int64_t kMaxReferenceRows = 128;
/// Any number; the same contents for every candidate.
constexpr std::uint64_t kSeed = 7;

/// Of an element: relative to itself, and to the root mean square of all. Segments keep what they
/// pass on inside in float32 or round it, as the parts of a library do.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 1e-2;
    case DType::kBFloat16:
      return 6e-2;
    default:
      return 1e-4;
  }
}

/// Storage ids of what the segment reads.
std::vector<ValueId> storages(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<ValueId> ids;
  for (const ValueId id : values) {
    const ValueId storage = graph.storage(id);
    if (std::find(ids.begin(), ids.end(), storage) == ids.end()) ids.push_back(storage);
  }
  return ids;
}

Tensor to_float(const Tensor& tensor) {
  return tensor.dtype() == DType::kFloat32 ? tensor
                                           : Tensor::converted(tensor.view(), DType::kFloat32);
}

/// Rows of a value that a candidate computed, against what they should be.
class Comparison {
 public:
  /// Rows of `expected` (float32) repeat; without, only whether all are numbers is looked at.
  Comparison(const graph::Value& value, const Tensor& got, const Tensor* expected)
      : value_(value),
        got_(got),
        expected_(expected),
        columns_(got.shape()[got.shape().rank() - 1]),
        rows_(got.size() / columns_),
        period_(expected == nullptr ? rows_ : expected->size() / columns_) {
    if (expected == nullptr) return;
    double sum = 0;
    for (const float x : expected->as<float>()) sum += static_cast<double>(x) * x;
    scale_ = std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(1, expected->size())));
  }

  /// The first fault, or nothing.
  std::string fault() const {
    const auto row_bytes = static_cast<std::size_t>(columns_) * dtype_bytes(got_.dtype());
    const auto* const bytes = static_cast<const std::byte*>(got_.data());
    const auto at = [&](std::int64_t row) {
      return bytes + static_cast<std::size_t>(row) * row_bytes;
    };
    for (std::int64_t row = 0; row < rows_; ++row) {
      // Equal to the last bit to one that was found right.
      if (row >= period_ && std::memcmp(at(row), at(row - period_), row_bytes) == 0) continue;
      std::string found = fault_of(row, at(row));
      if (!found.empty()) return found;
    }
    return "";
  }

 private:
  std::string fault_of(std::int64_t row, const void* data) const {
    const Tensor numbers = to_float(Tensor::copy_of({data, got_.dtype(), {columns_}}));
    const auto x = numbers.as<float>();
    const float* const y =
        expected_ == nullptr ? nullptr : expected_->as<float>().data() + row % period_ * columns_;
    const double limit = tolerance(got_.dtype());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i]))
        return fmt::format("value \"{}\": {:g} at [{}, {}], or not written", value_.name, x[i], row,
                           i);
      if (y == nullptr) continue;
      const double apart = std::abs(static_cast<double>(x[i]) - y[i]);
      if (apart > limit * (std::abs(y[i]) + scale_))
        return fmt::format("value \"{}\": {:g} at [{}, {}], expected {:g}", value_.name, x[i], row,
                           i, y[i]);
    }
    return "";
  }

  const graph::Value& value_;
  const Tensor& got_;
  const Tensor* expected_;
  std::int64_t columns_, rows_, period_;
  double scale_ = 0;
};

}  // namespace

/// Device memory with a guard behind it.
struct Validator::Buffer {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;

  static Buffer make(Device& device, const void* data, std::size_t bytes) {
    Buffer buffer{device.allocate(bytes + kGuardBytes), bytes};
    device.upload(buffer.memory.get(), data, bytes);
    const std::vector<std::byte> guard(kGuardBytes, kGuardByte);
    device.upload(buffer.end(), guard.data(), guard.size());
    return buffer;
  }

  void* end() const { return static_cast<std::byte*>(memory.get()) + bytes; }
  bool guard_is_whole(Device& device) const {
    std::vector<std::byte> guard(kGuardBytes);
    device.download(guard.data(), end(), guard.size());
    return std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kGuardByte; });
  }
  std::vector<std::byte> content(Device& device) const {
    std::vector<std::byte> bytes_read(bytes);
    device.download(bytes_read.data(), memory.get(), bytes);
    return bytes_read;
  }
};

/// One number of rows.
struct Validator::Case {
  std::shared_ptr<const Graph> graph;
  std::unique_ptr<Strip> strip;
  BatchShape batch;
  // By range, as equal segments have other values. In float32, one an output.
  std::map<Range, std::vector<Tensor>> expected;  ///< by the interpreter
  std::map<Range, std::vector<Tensor>> accepted;  ///< by the first candidate to pass
  Contents contents;  ///< of inputs, weights and activations, all rows random
  Contents repeating;
};

Validator::Validator(Device& device, const GraphOfRows& graph_of, const BatchShape& batch)
    : Validator(device, graph_of, batch.mask, {{0, 1}, {0, 5, 37}, batch.offsets}) {
  reads_weights_back_ = true;
}

Validator::Validator(Device& device, const GraphOfRows& graph_of, const mask::Mask& mask,
                     const std::vector<std::vector<std::int64_t>>& all_offsets)
    : device_(device), graph_of_(graph_of) {
  for (const std::vector<std::int64_t>& offsets : all_offsets) {
    auto c = std::make_unique<Case>();
    c->batch = {offsets, mask};
    c->graph = std::make_shared<const Graph>(graph_of(c->batch.rows()));
    c->strip = std::make_unique<Strip>(c->graph);
    cases_.push_back(std::move(c));
  }
}

Validator::~Validator() = default;

std::optional<std::string> Validator::check(Range range, const fusion::Choice& choice,
                                            const std::function<bool()>& stop) {
  for (const auto& c : cases_) {
    if (stop && stop()) return std::nullopt;
    std::string fault;
    try {
      fault = check_case(*c, range, choice);
    } catch (const Error& error) {
      // Few rows are more than a kernel need take; those that are tuned for are not.
      if (error.code() != ErrorCode::kUnsupported || c == cases_.back()) throw;
    }
    if (!fault.empty()) return fmt::format("{} ({} rows)", fault, c->batch.rows());
  }
  return "";
}

/// The case whose rows this one repeats, over and over: the largest that the interpreter takes.
/// None where that takes this one itself, or where rows depend on each other. Its number of rows is
/// no power of two, so that tiles that change places show.
Validator::Case* Validator::repeated(const Case& c, Range range) const {
  const std::int64_t rows = c.batch.rows();
  if (rows <= kMaxReferenceRows) return nullptr;
  const fusion::Segment segment = c.strip->segment(range);
  if (segment.family == fusion::Family::kAttention || segment.family == fusion::Family::kPool)
    return nullptr;
  for (const auto* values : {&segment.inputs, &segment.outputs})
    for (const ValueId id : *values)
      if (c.graph->value(id).kind != graph::ValueKind::kWeight &&
          c.graph->value(id).shape[0] != rows)
        return nullptr;
  Case* best = nullptr;
  for (const auto& other : cases_)
    if (other->batch.rows() <= kMaxReferenceRows) best = other.get();
  return best;
}

/// Of an input, a weight or an activation that a segment reads.
const Tensor& Validator::content(Case& c, Case* repeated, ValueId id) {
  const bool repeats = repeated != nullptr && c.graph->value(id).kind != graph::ValueKind::kWeight;
  Contents& contents = repeats ? c.repeating : c.contents;
  const auto found = contents.find(id);
  if (found != contents.end()) return found->second;
  if (!repeats) return contents[id] = random_value(*c.graph, id, c.batch, kSeed);
  const Tensor& few = content(*repeated, nullptr, id);
  const graph::Value& value = c.graph->value(id);
  Tensor many(value.dtype, value.shape);
  auto* const to = static_cast<std::byte*>(many.data());
  for (std::size_t done = 0; done < many.bytes(); done += few.bytes())
    std::memcpy(to + done, few.data(), std::min(few.bytes(), many.bytes() - done));
  return contents[id] = std::move(many);
}

/// What the interpreter says; empty where there are too many rows for it.
const std::vector<Tensor>& Validator::expected(Case& c, Range range) {
  const auto [found, is_new] = c.expected.try_emplace(range);
  if (!is_new || c.batch.rows() > kMaxReferenceRows) return found->second;
  const fusion::Segment segment = c.strip->segment(range);
  cpu::GraphOperands operands;
  operands.mask = c.batch.mask;
  operands.offsets = c.batch.offsets;
  for (const ValueId id : storages(*c.graph, segment.inputs))
    operands.values[id] = content(c, nullptr, id).view();
  for (const Tensor& result : interpret_segment(*c.graph, segment, operands))
    found->second.push_back(to_float(result));
  return found->second;
}

std::string Validator::check_case(Case& c, Range range, const fusion::Choice& choice) {
  const Graph& graph = *c.graph;
  const fusion::Segment segment = c.strip->segment(range);
  std::map<ValueId, Buffer> buffers;
  std::vector<void*> addresses(graph.values().size(), nullptr);
  const auto is_weight = [&](ValueId id) {
    return graph.value(id).kind == graph::ValueKind::kWeight;
  };
  Case* const few = repeated(c, range);
  for (const ValueId id : storages(graph, segment.inputs)) {
    const auto known = weights_.find(id);
    const Tensor& tensor = content(c, few, id);
    buffers[id] = is_weight(id) && known != weights_.end()
                      ? known->second
                      : Buffer::make(device_, tensor.data(), tensor.bytes());
    if (is_weight(id)) weights_[id] = buffers[id];
  }
  const std::vector<ValueId> outputs = storages(graph, segment.outputs);
  for (const ValueId id : outputs) {
    if (buffers.contains(id)) continue;  // an update in place
    const graph::Value& value = graph.value(id);
    // All bits set is a NaN of every float type.
    const std::vector<std::byte> poison(
        static_cast<std::size_t>(num_elements(value.shape)) * dtype_bytes(value.dtype),
        std::byte{0xFF});
    buffers[id] = Buffer::make(device_, poison.data(), poison.size());
  }
  for (const auto& [id, buffer] : buffers)
    addresses[static_cast<std::size_t>(id)] = buffer.memory.get();
  try {
    device_.prepare(graph, segment, choice, addresses, c.batch)->launch();
    device_.synchronize();
  } catch (...) {
    weights_.clear();  // whatever it did to them
    throw;
  }
  std::string spoilt;
  for (const auto& [id, buffer] : buffers) {
    const std::string& name = graph.value(id).name;
    const bool is_output = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
    const Tensor* const before = is_output ? nullptr : &content(c, few, id);
    if (!buffer.guard_is_whole(device_))
      spoilt = fmt::format("value \"{}\": bytes behind it were written", name);
    else if (!is_output && (reads_weights_back_ || !is_weight(id)) &&
             std::memcmp(buffer.content(device_).data(), before->data(), before->bytes()) != 0)
      spoilt = fmt::format("value \"{}\": an input was changed", name);
    if (!spoilt.empty()) break;
  }
  if (!spoilt.empty()) {
    weights_.clear();
    return spoilt;
  }
  const std::vector<Tensor>& expected = this->expected(few != nullptr ? *few : c, range);
  std::vector<Tensor>& accepted = c.accepted[range];
  std::vector<Tensor> computed;
  for (std::size_t i = 0; i < segment.outputs.size(); ++i) {
    const graph::Value& value = graph.value(segment.outputs[i]);
    Tensor& got = computed.emplace_back(value.dtype, value.shape);
    const Buffer& buffer = buffers.at(graph.storage(segment.outputs[i]));
    STOF_ASSERT(buffer.bytes == got.bytes());
    device_.download(got.data(), buffer.memory.get(), buffer.bytes);
    const Tensor* const known = !expected.empty()   ? &expected[i]
                                : !accepted.empty() ? &accepted[i]
                                                    : nullptr;
    std::string fault = Comparison(value, got, known).fault();
    if (!fault.empty()) return fault;
  }
  // Of use where there is nothing better to compare the next one with.
  if (expected.empty() && accepted.empty())
    for (const Tensor& tensor : computed) accepted.push_back(to_float(tensor));
  return "";
}

}  // namespace stof::tune
