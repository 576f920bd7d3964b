#include "generate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "mask_source.h"
#include "model_folder.h"
#include "output.h"
#include "stof/text_generator.h"
#include "texts.h"

namespace stof::cli {
namespace {

std::string rate(std::int64_t tokens, double seconds) {
  return fmt::format("{} tokens in {} ({:.1f} tokens/s)", tokens, human_duration(seconds),
                     static_cast<double>(tokens) / seconds);
}

}  // namespace

TextGenerator load_generator(const std::string& model, const LoadOptions& load,
                             const Program& program) {
  STOF_CHECK(
      is_folder(model) || file_exists(model), kNotFound, "--model: {}: no such folder or file{}",
      model,
      model == default_generator_folder() ? "; run scripts/setup --models to fetch SmolLM2" : "");
  TextGenerator generator = TextGenerator::load(model, load);
  if (load.place == Place::kAuto) report_place(generator.place(), generator.place_note(), program);
  return generator;
}

void generate_text(const GenerateArguments& arguments, const Program& program) {
  GenerateOptions options;
  if (arguments.max_tokens > 0) options.max_tokens = arguments.max_tokens;
  options.temperature = arguments.temperature;
  options.top_k = arguments.top_k;
  options.top_p = arguments.top_p;
  options.seed = arguments.seed;
  options.stop = arguments.stop;
  options.mask = load_mask_set(arguments.mask);
  options.num_threads = arguments.threads;
  Pruning pruning(arguments.prune);
  options.prune = pruning.options();
  const std::string prompt =
      arguments.prompt_file.empty() ? arguments.prompt : read_document(arguments.prompt_file);
  const TextGenerator generator = load_generator(arguments.model, arguments.load, program);
  if (!arguments.json)
    options.on_text = [](std::string_view text) {
      write_output(text);
      flush_output();
    };
  const GeneratedText result = generator.generate(
      arguments.chat ? generator.chat_prompt({{"user", prompt}}) : prompt, options);
  const auto num_tokens = static_cast<std::int64_t>(result.ids.size());
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"prompt", prompt},
                                         {"text", result.text},
                                         {"ids", result.ids},
                                         {"stopped_by", to_string(result.reason)},
                                         {"prompt_tokens", result.prompt_tokens},
                                         {"cached_tokens", result.cached_tokens},
                                         {"prefill_seconds", result.prefill},
                                         {"decode_seconds", result.decode}};
    print_out("{}\n", json.dump());
    pruning.report(program);
    return;
  }
  print_out("\n");
  flush_output();
  if (program.quiet) return;
  write_note(fmt::format("read {}, wrote {}, ended by {}",
                         rate(result.prompt_tokens, result.prefill),
                         rate(num_tokens, result.decode), to_string(result.reason)));
  pruning.report(program);
}

}  // namespace stof::cli
