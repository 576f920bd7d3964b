#include "model_problem.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "core/check.h"
#include "exec/plan.h"
#include "mask_source.h"
#include "model/bert_config.h"
#include "model/bert_graph.h"
#include "model/llama_config.h"
#include "model/llama_graph.h"
#include "model_folder.h"
#include "options.h"
#include "stof/gpu_info.h"
#include "tune/cpu_device.h"
#include "tune/cuda_device.h"

namespace stof::cli {
namespace {

struct Shape {
  std::int64_t batch = 0, seq = 0;
};

/// "8x512"
Shape parse_shape(const std::string& text) {
  const std::size_t cross = text.find('x');
  Shape shape;
  const auto number = [&](std::size_t begin, std::size_t end, std::int64_t* value) {
    const char* const last = text.data() + end;
    const auto [stop, status] = std::from_chars(text.data() + begin, last, *value);
    return status == std::errc() && stop == last && *value > 0;
  };
  STOF_CHECK(
      cross != std::string::npos && number(0, cross, &shape.batch) &&
          number(cross + 1, text.size(), &shape.seq) && shape.batch <= kMaxSequence / shape.seq,
      kInvalidArgument, "--shape: expected sequences x tokens each, as 8x512, got \"{}\"", text);
  return shape;
}

bool on_gpu(const ModelArguments& arguments) {
  if (arguments.device == "cuda") return true;
  return arguments.device == "auto" && !gpu_info().devices.empty();
}

/// As `stof run` computes.
DType dtype_of(const ModelArguments& arguments) {
  const bool gpu = on_gpu(arguments);
  if (arguments.dtype == "auto") return gpu ? DType::kFloat16 : DType::kFloat32;
  const DType dtype = dtype_from_string(arguments.dtype);
  STOF_CHECK(
      gpu != (dtype == DType::kFloat32), kUnsupported,
      "--dtype: models run in fp32 on the CPU and in fp16 or bf16 on a GPU, got {} on the {}",
      arguments.dtype, gpu ? "GPU" : "CPU");
  return dtype;
}

}  // namespace

void add_model_arguments(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option(
          "MODEL", arguments.model,
          "Hugging Face folder of a BERT, RoBERTa, DistilBERT, LLaMA, Mistral or Qwen 2 model")
      ->required();
  command.add_option("--shape", arguments.shape, "Sequences x tokens each")->capture_default_str();
  command.add_option("--mask", arguments.mask, "Mask expression; stof mask list shows the words")
      ->capture_default_str();
  command
      .add_option("--device", arguments.device,
                  "Where it runs; auto takes a GPU where there is one")
      ->check(one_of({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--dtype", arguments.dtype, "Element type; auto: fp32 on the CPU, fp16 on a GPU")
      ->check(one_of({"auto", "fp32", "fp16", "bf16"}))
      ->capture_default_str();
  command.add_option("--rows", arguments.rows)->group("");  // of the measuring process
  command.add_option("--threads", arguments.threads, "Threads on the CPU (default: all cores)")
      ->transform(whole_number(1, 1024));
}

tune::TuningProblem load_problem(const ModelArguments& arguments) {
  const Shape shape = parse_shape(arguments.shape);
  tune::TuningProblem problem;
  std::int64_t max_positions = 0;
  const DType dtype = dtype_of(arguments);
  const std::string type = model_type(arguments.model);
  const bool other_kind = type == "gpt2" || type == "vit" || type == "t5" || type == "mt5" ||
                          type.starts_with("gemma3");
  STOF_CHECK(!other_kind, kUnsupported,
             "MODEL: {}: expected a BERT, RoBERTa, DistilBERT, LLaMA, Mistral or Qwen 2 model, got "
             "\"{}\"; such models are run, but neither tuned nor explained",
             arguments.model, type);
  if (type == "llama" || type == "mistral" || type == "qwen2") {
    const model::LlamaConfig config = model::load_llama_config(arguments.model);
    max_positions = config.max_positions;
    // A GPU's products multiply halves of their own; those of oneDNN read the other factor.
    model::DecoderGraphOptions options;
    options.joined_gate = dtype != DType::kFloat32;
    problem.graph_of = [config, dtype, options](std::int64_t rows) {
      return model::build_llama_graph(config, rows, dtype, options);
    };
  } else {
    const model::BertConfig config = model::load_bert_config(arguments.model);
    max_positions = config.max_positions;
    problem.graph_of = [config, dtype](std::int64_t rows) {
      return model::build_bert_graph(config, rows, dtype);
    };
  }
  const int masks = problem.graph_of(1).num_masks();
  STOF_CHECK(masks <= 1, kUnsupported,
             "MODEL: {}: expected a model whose layers share one mask, got layers under {} (local "
             "and global ones); such models are run, but neither tuned nor explained",
             arguments.model, masks);
  STOF_CHECK(shape.seq <= max_positions, kInvalidArgument,
             "--shape: the model has {} positions, got sequences of {} tokens", max_positions,
             shape.seq);
  const mask::MaskSet set = load_mask_set(arguments.mask);
  STOF_CHECK(set.uniform(), kUnsupported,
             "--mask: {}: expected one mask for all layers, got masks of layers and heads; such "
             "models are run, but neither tuned nor explained",
             arguments.mask);
  problem.batch.mask = set.otherwise();
  for (std::int64_t i = 0; i <= shape.batch; ++i) problem.batch.offsets.push_back(i * shape.seq);
  // What a session adds to have few shapes.
  const std::int64_t wanted =
      arguments.rows > 0 ? arguments.rows : exec::bucket_rows(problem.batch.rows());
  for (std::int64_t left = wanted - problem.batch.rows(); left > 0; left -= shape.seq)
    problem.batch.offsets.push_back(problem.batch.rows() + std::min(left, shape.seq));
  return problem;
}

tune::Environment environment_of(const ModelArguments& arguments) {
  return on_gpu(arguments) ? tune::gpu_environment() : tune::cpu_environment(arguments.threads);
}

std::unique_ptr<tune::Device> open_device(const ModelArguments& arguments) {
  if (on_gpu(arguments)) return tune::make_cuda_device();
  return tune::make_cpu_device(arguments.threads);
}

}  // namespace stof::cli
