#include "rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "mask_source.h"
#include "model_folder.h"
#include "output.h"
#include "stof/seq2seq_generator.h"

namespace stof::cli {
namespace {

void print_result(const RewriteArguments& arguments, std::size_t index, const std::string& prefix,
                  const GeneratedText& result) {
  if (!arguments.json) {
    print_out("{}\n", arguments.batch > 1 ? result.text : "");
    return;
  }
  const nlohmann::ordered_json json = {{"index", index},
                                       {"text", arguments.texts[index]},
                                       {"prefix", prefix},
                                       {"written", result.text},
                                       {"ids", result.ids},
                                       {"stopped_by", to_string(result.reason)},
                                       {"text_tokens", result.prompt_tokens},
                                       {"read_seconds", result.prefill},
                                       {"write_seconds", result.decode}};
  print_out("{}\n", json.dump());
}

}  // namespace

void rewrite_texts(const RewriteArguments& arguments, const Program& program) {
  STOF_CHECK(is_folder(arguments.model), kNotFound, "--model: {}: no such folder", arguments.model);
  const Seq2SeqGenerator generator = Seq2SeqGenerator::load(arguments.model, arguments.load);
  if (arguments.load.place == Place::kAuto)
    report_place(generator.place(), generator.place_note(), program);
  const Seq2SeqTask task = arguments.prefix ? Seq2SeqTask{"", *arguments.prefix}
                           : arguments.translates
                               ? generator.translation(arguments.source, arguments.target)
                               : generator.summary();
  GenerateOptions options;
  if (task.max_tokens > 0) options.max_tokens = task.max_tokens;
  if (arguments.max_tokens > 0) options.max_tokens = arguments.max_tokens;
  options.temperature = arguments.sampling.temperature;
  options.top_k = arguments.sampling.top_k;
  options.top_p = arguments.sampling.top_p;
  options.seed = arguments.sampling.seed;
  options.stop = arguments.sampling.stop;
  options.mask = load_mask_set(arguments.mask);
  options.num_threads = arguments.threads;
  if (!arguments.json && arguments.batch == 1)
    options.on_text = [](std::string_view text) {
      write_output(text);
      flush_output();
    };
  std::int64_t read = 0, written = 0;
  double seconds = 0;
  const auto batch = static_cast<std::size_t>(arguments.batch);
  for (std::size_t first = 0; first < arguments.texts.size(); first += batch) {
    std::vector<std::string> texts;
    for (std::size_t i = first; i < std::min(first + batch, arguments.texts.size()); ++i)
      texts.push_back(task.prefix + arguments.texts[i]);
    std::vector<GeneratedText> results;
    if (batch == 1)
      results.push_back(generator.generate(texts[0], options));
    else
      results = generator.generate_all(texts, options);
    for (std::size_t i = 0; i < results.size(); ++i) {
      print_result(arguments, first + i, task.prefix, results[i]);
      read += results[i].prompt_tokens;
      written += static_cast<std::int64_t>(results[i].ids.size());
    }
    seconds += results[0].prefill + results[0].decode;
    flush_output();
  }
  if (program.quiet || arguments.json) return;
  write_note(fmt::format("read {} tokens, wrote {} in {}", read, written, human_duration(seconds)));
}

}  // namespace stof::cli
