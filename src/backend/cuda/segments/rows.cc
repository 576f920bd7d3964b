// Steps over whole rows, by row programs.

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cuda/rows/row_program.h"
#include "backend/cuda/segments/operands.h"

namespace stof::cuda {
namespace {

using codegen::RowInstruction;
using codegen::RowProgramConfig;
using codegen::RowStep;
using fusion::Choice;
using fusion::Family;
using fusion::Segment;
using fusion::Step;
using graph::Graph;
using graph::kNoId;
using graph::ValueId;

/// A segment as a row program; operand i of the program is the value `operands[i]`.
struct Program {
  DType element = DType::kBFloat16;
  std::int64_t rows = 0, width = 0;
  std::vector<RowInstruction> instructions;
  std::vector<ValueId> operands;
  float epsilon = 0;
  codegen::RowHeads heads;
  std::int64_t skipped = 0;  ///< columns of the first operand that nothing is done with
};

RowStep activation_of(Step step) {
  switch (step) {
    case Step::kRelu:
      return RowStep::kRelu;
    case Step::kGeluErf:
      return RowStep::kGeluErf;
    case Step::kGeluTanh:
      return RowStep::kGeluTanh;
    default:
      return RowStep::kSilu;
  }
}

/// Translates a segment; `good` ends false where a step or an operand has no instruction.
class Translator {
 public:
  Translator(const Graph& graph, const Segment& segment) : graph_(graph), segment_(segment) {}

  std::optional<Program> run() {
    const graph::Operator& first = graph_.op(segment_.first);
    const bool tables = segment_.family == Family::kEmbedding;
    if (!tables && segment_.family != Family::kRow && segment_.family != Family::kElementwise)
      return std::nullopt;
    if (segment_.steps.empty() && !tables) return std::nullopt;  // a copy under another shape
    const graph::Value& running = graph_.value(tables ? first.outputs[0] : segment_.inputs[0]);
    if (running.shape.rank() != 2 || segment_.gate_view != kNoId) return std::nullopt;
    program_.element = running.dtype;
    program_.rows = running.shape[0];
    program_.width = running.shape[1];
    // A store into a cache by itself reads keys and values alone.
    if (!tables && segment_.steps[0].step == Step::kCacheStore) {
      const graph::Attributes& a = first.attributes;
      program_.skipped = a.heads * a.head_dim;
      program_.width -= program_.skipped;
    }
    if (tables) {
      load_table(first.inputs[0], first.inputs[1]);
      if (first.inputs.size() > 2) load_table(first.inputs[2], first.inputs[3]);
      if (first.inputs.size() > 4) load_first_row(first.inputs[4]);
      store_after(segment_.first);
    } else {
      matrix(RowStep::kAddRow, segment_.inputs[0]);
    }
    for (const fusion::EpilogueStep& step : segment_.steps) {
      translate(step);
      store_after(step.op);
    }
    if (!stored_) instruction(RowStep::kStore, {segment_.outputs[0]});
    if (program_.operands.size() > static_cast<std::size_t>(RowProgramConfig::kMaxOperands))
      good_ = false;
    return good_ ? std::optional(program_) : std::nullopt;
  }

 private:
  void instruction(RowStep step, const std::vector<ValueId>& operands, bool wide = false) {
    program_.instructions.push_back(
        {step, static_cast<int>(operands.empty() ? 0 : program_.operands.size()), wide});
    program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  }

  /// An operand must lie in memory before the segment begins: not only in its registers.
  bool is_bound(ValueId id) const {
    return std::find(segment_.inputs.begin(), segment_.inputs.end(), id) != segment_.inputs.end();
  }

  void matrix(RowStep step, ValueId id) {
    const graph::Value& value = graph_.value(id);
    const Dims& shape = value.shape;
    const Dims& base = graph_.value(graph_.storage(id)).shape;
    const std::int64_t columns = step == RowStep::kScale ? 1 : program_.width;
    const std::int64_t stride = base[base.rank() - 1];
    const std::int64_t skipped = program_.operands.empty() ? program_.skipped : 0;
    good_ = good_ && is_bound(id) && value.dtype == program_.element && shape.rank() == 2 &&
            shape[1] == columns + skipped && (shape[0] == program_.rows || shape[0] == 1) &&
            (columns == 1 || (stride % 8 == 0 && value.view_column % 8 == 0));
    instruction(step, {id});
  }

  void vector(RowStep step, const std::vector<ValueId>& ids) {
    const DType dtype = graph_.value(ids[0]).dtype;
    for (const ValueId id : ids) {
      const graph::Value& value = graph_.value(id);
      // Vectors are read before the kernel before has ended: it must not be the one that writes
      // them.
      good_ = good_ && value.kind == graph::ValueKind::kWeight && value.dtype == dtype &&
              value.shape == Dims({program_.width}) &&
              (dtype == program_.element || dtype == DType::kFloat32);
    }
    instruction(step, ids, dtype == DType::kFloat32);
  }

  /// Gammas of queries' and of keys' heads, as long as a head.
  void head_vectors(const fusion::EpilogueStep& step) {
    const graph::Attributes& a = graph_.op(step.op).attributes;
    const DType dtype = graph_.value(step.operand).dtype;
    for (const ValueId id : {step.operand, step.operand2})
      good_ = good_ && graph_.value(id).kind == graph::ValueKind::kWeight &&
              graph_.value(id).dtype == dtype &&
              (dtype == program_.element || dtype == DType::kFloat32);
    set_heads(a);
    program_.heads.rotated = static_cast<int>((a.heads + a.kv_heads) * a.head_dim);
    program_.heads.queries = static_cast<int>(a.heads * a.head_dim);
    instruction(RowStep::kHeadNorm, {step.operand, step.operand2}, dtype == DType::kFloat32);
  }

  /// Sums of squares: rows of float32 one behind the other.
  void sums(RowStep step, ValueId id) {
    const graph::Value& value = graph_.value(id);
    good_ = good_ && value.dtype == DType::kFloat32 && is_dense(graph_, id) &&
            value.shape[0] == program_.rows;
    instruction(step, {id});
  }

  void take_epsilon(double epsilon) {
    const auto narrow = static_cast<float>(epsilon);
    good_ = good_ && (!has_epsilon_ || program_.epsilon == narrow);
    has_epsilon_ = true;
    program_.epsilon = narrow;
  }

  void load_table(ValueId ids, ValueId table) {
    good_ = good_ && graph_.value(ids).dtype == DType::kInt32 &&
            graph_.value(table).dtype == program_.element &&
            graph_.value(table).shape[1] == program_.width;
    instruction(RowStep::kAddTable, {ids, table});
  }

  /// The same row of a table for all.
  void load_first_row(ValueId table) {
    good_ = good_ && graph_.value(table).dtype == program_.element &&
            graph_.value(table).shape[1] == program_.width &&
            graph_.value(table).kind == graph::ValueKind::kWeight;
    instruction(RowStep::kAddVector, {table});
  }

  void translate(const fusion::EpilogueStep& step) {
    switch (step.step) {
      case Step::kBias:
        return vector(RowStep::kAddVector, {step.operand});
      case Step::kResidual:
        return matrix(RowStep::kAddRow, step.operand);
      case Step::kGate:
        return matrix(RowStep::kMultiplyRow, step.operand);
      case Step::kRowScale:
        return matrix(RowStep::kScale, step.operand);
      case Step::kRelu:
      case Step::kGeluErf:
      case Step::kGeluTanh:
      case Step::kSilu:
        return instruction(activation_of(step.step), {});
      case Step::kLayerNorm:
        take_epsilon(step.epsilon);
        return vector(RowStep::kLayerNorm, {step.operand, step.operand2});
      case Step::kRmsNorm:
        take_epsilon(step.epsilon);
        return vector(RowStep::kRmsNorm, {step.operand});
      case Step::kHeadNorm:
        take_epsilon(step.epsilon);
        return head_vectors(step);
      case Step::kRope: {
        const graph::Attributes& a = graph_.op(step.op).attributes;
        good_ = good_ && is_bound(step.operand) &&
                graph_.value(step.operand2).kind == graph::ValueKind::kWeight;
        set_heads(a);
        program_.heads.rotated = static_cast<int>((a.heads + a.kv_heads) * a.head_dim);
        return instruction(RowStep::kRope, {step.operand, step.operand2});
      }
      case Step::kRmsScale:
        take_epsilon(step.epsilon);
        good_ = good_ && is_bound(step.operand);
        return sums(RowStep::kRmsScale, step.operand);
      case Step::kRowSquares:
        stored_ = true;
        return sums(RowStep::kStoreSquares, segment_.outputs[0]);
      case Step::kHeadStore:
        stored_ = true;
        set_heads(graph_.op(step.op).attributes);
        return instruction(RowStep::kStoreHeads, {segment_.outputs[0]});
      case Step::kCacheStore: {
        const graph::Attributes& a = graph_.op(step.op).attributes;
        stored_ = true;
        set_heads(a);
        program_.heads.cached = static_cast<int>(a.heads * a.head_dim - program_.skipped);
        return instruction(RowStep::kStoreCache, {step.operand, segment_.outputs[0]});
      }
      default:
        good_ = false;
    }
  }

  void set_heads(const graph::Attributes& attributes) {
    good_ = good_ && (program_.heads.dim == 0 || program_.heads.dim == attributes.head_dim);
    program_.heads.dim = static_cast<int>(attributes.head_dim);
  }

  /// What the operator makes, where it is read elsewhere too.
  void store_after(graph::OperatorId op) {
    if (op == segment_.last) return;
    for (const ValueId output : graph_.op(op).outputs)
      if (std::find(segment_.outputs.begin(), segment_.outputs.end(), output) !=
          segment_.outputs.end())
        instruction(RowStep::kStore, {output});
  }

  const Graph& graph_;
  const Segment& segment_;
  Program program_;
  bool good_ = true;
  bool stored_ = false;  ///< by the last step
  bool has_epsilon_ = false;
};

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device& device) {
  const std::optional<Program> program = Translator(graph, segment).run();
  if (!program) return {};
  std::vector<Choice> all;
  for (const RowProgramConfig& config :
       row_program_configs(program->element, program->width, program->instructions, program->rows,
                           device.facts().num_sms, program->heads))
    all.push_back({kRowRunners.name,
                   {{"vector", config.vector}, {"warps", config.warps}, {"rows", config.rows}}});
  return all;
}

class Rows final : public SegmentRunner {
 public:
  Rows(const RowProgram& program, const RowOperands& operands, std::int64_t rows, float epsilon)
      : program_(program), operands_(operands), rows_(rows), epsilon_(epsilon) {}

  void launch(CUstream stream) const override { program_.run(operands_, rows_, epsilon_, stream); }

 private:
  RowProgram program_;
  RowOperands operands_;
  std::int64_t rows_;
  float epsilon_;
};

/// Throws Unsupported where the segment is no row program.
std::pair<Program, RowProgramConfig> configured(const Graph& graph, const Segment& segment,
                                                const Choice& choice) {
  std::optional<Program> program = Translator(graph, segment).run();
  if (!program) refuse(graph, segment, choice, "a step or an operand has no instruction");
  const auto number = [&](const char* name) { return static_cast<int>(choice.at(name)); };
  const RowProgramConfig config{program->element, program->width,  program->instructions,
                                number("vector"), number("warps"), number("rows"),
                                program->heads};
  return {std::move(*program), config};
}

jit::CubinRequest kernel(const Graph& graph, const Segment& segment, const Choice& choice,
                         const Device& device) {
  const KernelSource source = RowProgram::source(configured(graph, segment, choice).second);
  return {source.name, source.text, device.facts().target()};
}

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device& device) {
  const auto [program, config] = configured(graph, segment, choice);
  RowOperands operands;
  for (std::size_t i = 0; i < program.operands.size(); ++i) {
    const Matrix matrix = matrix_of(graph, bindings, program.operands[i]);
    const graph::Value& value = graph.value(program.operands[i]);
    // Sums of squares are dense, and their kernel takes their number from the stride of one row
    // too.
    const bool wide = value.dtype == DType::kFloat32 && value.shape.rank() == 2;
    operands[i] = {matrix.data, wide ? 2 * matrix.columns : matrix.stride};
  }
  operands[0].data += static_cast<CUdeviceptr>(program.skipped) * dtype_bytes(program.element);
  return std::make_unique<Rows>(RowProgram(config, device), operands, program.rows,
                                program.epsilon);
}

}  // namespace

const RunnerFamily kRowRunners = {"row", choices, make, kernel};

}  // namespace stof::cuda
