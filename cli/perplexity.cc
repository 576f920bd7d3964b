#include "perplexity.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/text.h"
#include "generate.h"
#include "mask_source.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "stof/npy.h"
#include "stof/text_generator.h"
#include "texts.h"

namespace stof::cli {

void print_perplexity(const PerplexityArguments& arguments, const Program& program) {
  STOF_CHECK(arguments.texts.empty() != arguments.file.empty(), kInvalidArgument,
             "TEXT: with --task perplexity expected texts, or --file with one text");
  ScoreOptions options;
  options.mask = load_mask_set(arguments.mask);
  Pruning pruning(arguments.prune);
  options.prune = pruning.options();
  options.window = arguments.window;
  options.stride = arguments.stride;
  options.num_threads = arguments.threads;
  const std::vector<std::string> texts =
      arguments.file.empty() ? arguments.texts : std::vector{read_document(arguments.file)};
  if (!arguments.output.empty()) require_writable("--output", arguments.output);
  const TextGenerator model = load_generator(arguments.model, arguments.load, program);
  std::vector<std::vector<std::string>> rows = {
      {"text", "tokens", "scored", "log-likelihood a token", "perplexity", "tokens/s"}};
  std::vector<float> all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<std::int32_t> ids = model.tokenize(texts[i]);
    STOF_CHECK(ids.size() >= 2, kInvalidArgument,
               "text {}: expected at least two tokens, of which the first tells of the second, got "
               "{}",
               i + 1, ids.size());
    ProgressBar bar("reading", static_cast<std::int64_t>(ids.size()), program.quiet);
    options.progress = [&bar](std::int64_t done, std::int64_t) { bar.update(done); };
    const TextScore score = model.score(ids, options);
    all.insert(all.end(), score.log_likelihoods.begin(), score.log_likelihoods.end());
    const double each = score.log_likelihood / static_cast<double>(score.num_scored);
    if (arguments.json) {
      print_out("{}\n", nlohmann::ordered_json{{"index", i},
                                               {"num_tokens", ids.size()},
                                               {"num_scored", score.num_scored},
                                               {"log_likelihood", score.log_likelihood},
                                               {"perplexity", score.perplexity()},
                                               {"seconds", score.seconds}}
                            .dump());
      continue;
    }
    rows.push_back({arguments.file.empty() ? std::to_string(i + 1) : arguments.file,
                    human_count(static_cast<std::int64_t>(ids.size())),
                    human_count(score.num_scored), fmt::format("{:.4f}", each),
                    fmt::format("{:.4f}", score.perplexity()),
                    fmt::format("{:.1f}", static_cast<double>(ids.size()) / score.seconds)});
  }
  if (!arguments.output.empty())
    save_npy(arguments.output,
             {all.data(), DType::kFloat32, {static_cast<std::int64_t>(all.size())}});
  if (!arguments.json) write_output(format_table(rows));
  pruning.report(program);
}

}  // namespace stof::cli
