// Steps over whole rows: a thread keeps one row in its cache from the first load to the last store.

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/cpu/ops/layer_norm.h"
#include "backend/cpu/ops/rope.h"
#include "backend/cpu/segments/operands.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

using fusion::Family;
using fusion::Segment;
using fusion::Step;
using graph::Graph;
using graph::kNoId;
using graph::ValueId;

float activate(Step step, float x) {
  switch (step) {
    case Step::kRelu:
      return x > 0 || std::isnan(x) ? x : 0;
    case Step::kGeluErf:
      return 0.5f * x * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2));
    case Step::kGeluTanh:
      return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    default:
      return x / (1 + std::exp(-x));
  }
}

void rms_norm(const float* gamma, std::int64_t width, float epsilon, float* x) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < width; ++i) squares += x[i] * x[i];
  const float inverse = 1 / std::sqrt(squares / static_cast<float>(width) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) x[i] *= inverse * gamma[i];
}

/// A step with what it reads.
struct BoundStep {
  Step step;
  Matrix operand, operand2;
  const std::int32_t* positions = nullptr;  ///< of kRope
  graph::Attributes attributes;             ///< of kRope and kHeadNorm
  float epsilon = 0;
  Matrix store;  ///< where the running row goes after the step; none: nowhere
};

/// `angles` holds a head's numbers for the rotation.
void apply(const BoundStep& step, std::int64_t row, std::int64_t width, float* x, float* angles) {
  const float* const operand = step.operand.data == nullptr ? nullptr : step.operand.row(row);
  switch (step.step) {
    case Step::kBias:
    case Step::kResidual:
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) x[i] += operand[i];
      break;
    case Step::kGate:
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) x[i] *= operand[i];
      break;
    case Step::kRowScale:
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) x[i] *= *operand;
      break;
    case Step::kLayerNorm:
      LayerNorm{operand, step.operand2.data, width, step.epsilon}.row(x, x);
      break;
    case Step::kRmsNorm:
      rms_norm(operand, width, step.epsilon, x);
      break;
    case Step::kRmsScale: {
      float squares = 0;
      const std::int64_t sums = step.operand.columns;
      for (std::int64_t i = 0; i < sums; ++i) squares += operand[i];
      const auto mean = squares / static_cast<float>(sums * graph::kSquaredColumns);
      const float inverse = 1 / std::sqrt(mean + step.epsilon);
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) x[i] *= inverse;
      break;
    }
    case Step::kHeadNorm: {
      const graph::Attributes& a = step.attributes;
      for (std::int64_t h = 0; h < a.heads + a.kv_heads; ++h)  // values stay
        rms_norm(h < a.heads ? step.operand.data : step.operand2.data, a.head_dim, step.epsilon,
                 x + h * a.head_dim);
      break;
    }
    case Step::kRope: {
      // Queries and keys; values follow them and stay.
      const std::int64_t pairs = step.attributes.head_dim / 2;
      rope_angles(step.operand2.data, pairs, step.positions[row], angles, angles + pairs);
      rotate_row(angles, angles + pairs, pairs, step.attributes.heads + step.attributes.kv_heads,
                 x);
      break;
    }
    default:
      for (std::int64_t i = 0; i < width; ++i) x[i] = activate(step.step, x[i]);
      break;
  }
}

class Rows final : public SegmentRunner {
 public:
  void run(std::int64_t count) const override {
    const int rows_at_once =
        chunk > 0 ? chunk
                  : static_cast<int>(std::max<std::int64_t>(
                        1, (count + omp_get_max_threads() - 1) / omp_get_max_threads()));
#pragma omp parallel
    {
      std::vector<float> buffer(static_cast<std::size_t>(width + angles));
#pragma omp for schedule(static, rows_at_once)
      for (std::int64_t row = 0; row < count; ++row) run_row(row, buffer.data());
    }
  }

  std::int64_t rows = 0, width = 0;  ///< of the whole matrix
  int chunk = 0;                     ///< 0: as many as make one share a thread
  Matrix x;                          ///< none for an embedding
  struct Table {
    const std::int32_t* ids;  ///< null: the first row for all
    Matrix rows;
  };
  std::vector<Table> tables;
  Matrix store;  ///< of the running row before any step: an embedding whose sum is read elsewhere
  std::vector<BoundStep> steps;
  std::int64_t angles = 0;              ///< numbers of a head's rotation
  std::int64_t head_dim = 0;            ///< > 0: out is [heads, rows, head_dim]
  const std::int32_t* slots = nullptr;  ///< if any: columns from `kept` on go to out's row slots[r]
  std::int64_t kept = 0;
  bool squares = false;  ///< out has sums of squares
  Matrix out;

 private:
  void run_row(std::int64_t row, float* values) const {
    if (x.data != nullptr) {
      std::copy_n(x.row(row), width, values);
    } else {
      std::fill_n(values, width, 0.f);
      for (const Table& table : tables) {
        const float* const from = table.rows.row(table.ids == nullptr ? 0 : table.ids[row]);
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) values[i] += from[i];
      }
    }
    if (store.data != nullptr) std::copy_n(values, width, store.row(row));
    for (const BoundStep& step : steps) {
      apply(step, row, width, values, values + width);
      if (step.store.data != nullptr) std::copy_n(values, width, step.store.row(row));
    }
    if (slots != nullptr) {
      if (slots[row] >= 0) std::copy_n(values + kept, width - kept, out.row(slots[row]));
      return;
    }
    if (squares) {
      float* const sums = out.row(row);
      std::fill_n(sums, out.columns, 0.f);
      for (std::int64_t i = 0; i < width; ++i)
        sums[i / graph::kSquaredColumns] += values[i] * values[i];
      return;
    }
    if (head_dim == 0) {
      std::copy_n(values, width, out.row(row));
      return;
    }
    for (std::int64_t head = 0; head < width / head_dim; ++head)
      std::copy_n(values + head * head_dim, head_dim, out.data + (head * rows + row) * head_dim);
  }
};

/// The operator's only output, where the segment writes it besides its last.
ValueId stored_after(const Graph& graph, const Segment& segment, graph::OperatorId op) {
  if (op == segment.last) return kNoId;
  for (const ValueId output : graph.op(op).outputs)
    if (std::find(segment.outputs.begin(), segment.outputs.end(), output) != segment.outputs.end())
      return output;
  return kNoId;
}

/// The running row's source, of segments that do not begin with tables: what the first operator
/// reads and no step does.
ValueId running_input(const Segment& segment) { return segment.inputs[0]; }

bool fits_rows(const Graph& graph, ValueId id, std::int64_t rows, std::int64_t width) {
  const graph::Value& value = graph.value(id);
  if (value.dtype != DType::kFloat32) return false;
  const int rank = value.shape.rank();
  if (rank == 1) return value.shape[0] == width;
  return rank == 2 && value.shape[1] == width && (value.shape[0] == rows || value.shape[0] == 1);
}

}  // namespace

bool rows_fit(const Graph& graph, const Segment& segment) {
  const graph::Value& out = graph.value(segment.outputs[0]);
  if (out.dtype != DType::kFloat32 || out.shape.rank() < 2) return false;
  if (graph.op(segment.last).op == graph::Op::kReshape || segment.gate_view != kNoId) return false;
  const bool tables = segment.family == Family::kEmbedding;
  const Dims& in =
      graph.value(tables ? graph.op(segment.first).outputs[0] : running_input(segment)).shape;
  if (in.rank() != 2) return false;
  const std::int64_t rows = in[0], width = in[1];
  if (!tables && !fits_rows(graph, running_input(segment), rows, width)) return false;
  // What a step reads was written before the segment: it is not kept where only registers hold it.
  for (const fusion::EpilogueStep& step : segment.steps)
    for (const ValueId operand : {step.operand, step.operand2})
      if (operand != kNoId &&
          std::find(segment.inputs.begin(), segment.inputs.end(), operand) == segment.inputs.end())
        return false;
  for (const fusion::EpilogueStep& step : segment.steps) switch (step.step) {
      case Step::kMatmul:
        return false;
      case Step::kRmsScale:
        if (graph.value(step.operand).shape[0] != rows) return false;
        break;
      case Step::kRowScale: {
        const Dims& shape = graph.value(step.operand).shape;
        if (shape.rank() != 2 || shape[0] != rows || shape[1] != 1) return false;
        break;
      }
      case Step::kHeadNorm:  // its gammas are vectors of a head, which the graph has checked
      case Step::kRope:
      case Step::kHeadStore:
      case Step::kCacheStore:
      case Step::kRowSquares:
        break;
      default:
        for (const ValueId operand : {step.operand, step.operand2})
          if (operand != kNoId && !fits_rows(graph, operand, rows, width)) return false;
    }
  return true;
}

std::unique_ptr<SegmentRunner> make_rows(const Graph& graph, const Segment& segment,
                                         const fusion::Choice& choice,
                                         const SegmentBindings& bindings) {
  auto rows = std::make_unique<Rows>();
  const auto matrix = [&](ValueId id) {
    return id == kNoId ? Matrix() : matrix_of(graph, bindings, id);
  };
  const auto ids = [&](ValueId id) {
    return static_cast<const std::int32_t*>(address_of(graph, bindings, id));
  };
  rows->chunk = static_cast<int>(choice.at("chunk"));
  if (segment.family == Family::kEmbedding) {
    const graph::Operator& op = graph.op(segment.first);
    rows->tables.push_back({ids(op.inputs[0]), matrix(op.inputs[1])});
    if (op.inputs.size() > 2) rows->tables.push_back({ids(op.inputs[2]), matrix(op.inputs[3])});
    if (op.inputs.size() > 4) rows->tables.push_back({nullptr, matrix(op.inputs[4])});
    const Dims& shape = graph.value(op.outputs[0]).shape;
    rows->rows = shape[0];
    rows->width = shape[1];
    rows->store = matrix(stored_after(graph, segment, segment.first));
  } else {
    rows->x = matrix(running_input(segment));
    rows->rows = graph.value(running_input(segment)).shape[0];
    rows->width = rows->x.columns;
  }
  for (const fusion::EpilogueStep& step : segment.steps) {
    if (step.step == Step::kHeadStore) {
      rows->head_dim = graph.op(step.op).attributes.head_dim;
      continue;
    }
    if (step.step == Step::kRowSquares) {
      rows->squares = true;
      continue;
    }
    if (step.step == Step::kCacheStore) {
      const graph::Attributes& attributes = graph.op(step.op).attributes;
      rows->slots = ids(step.operand);
      rows->kept = attributes.heads * attributes.head_dim;
      continue;
    }
    BoundStep bound{
        step.step, {}, matrix(step.operand2), nullptr, {}, static_cast<float>(step.epsilon), {}};
    bound.attributes = graph.op(step.op).attributes;
    if (step.step == Step::kRope) {
      bound.positions = ids(step.operand);
      rows->angles = bound.attributes.head_dim;
    } else {
      bound.operand = matrix(step.operand);
    }
    bound.store = matrix(stored_after(graph, segment, step.op));
    rows->steps.push_back(bound);
  }
  rows->out = matrix(segment.outputs[0]);
  return rows;
}

}  // namespace stof::cpu
