#include "classify.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "mask_source.h"
#include "output.h"
#include "progress.h"
#include "stof/image_classifier.h"

namespace stof::cli {

void classify_images(const ClassifyArguments& arguments, const Program& program) {
  STOF_CHECK(!arguments.images.empty(), kInvalidArgument,
             "TEXT: with --task classify expected the path of at least one image, got none");
  ClassifyOptions options;
  options.count = arguments.count;
  options.batch = arguments.batch;
  options.num_threads = arguments.threads;
  options.mask = load_mask_set(arguments.mask);
  Pruning pruning(arguments.prune);
  options.prune = pruning.options();
  const ImageClassifier classifier = ImageClassifier::load(arguments.model);
  ProgressBar bar("classifying", static_cast<std::int64_t>(arguments.images.size()), program.quiet);
  options.progress = [&bar](std::int64_t done, std::int64_t) { bar.update(done); };
  const auto results = classifier.classify(arguments.images, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    nlohmann::ordered_json labels = nlohmann::json::array();
    std::vector<std::vector<std::string>> rows = {{"  label", "id", "probability"}};
    for (const ImageLabel& label : results[i]) {
      labels.push_back(
          {{"label", label.label}, {"id", label.id}, {"probability", label.probability}});
      rows.push_back(
          {"  " + label.label, std::to_string(label.id), fmt::format("{:.4f}", label.probability)});
    }
    if (arguments.json)
      print_out(
          "{}\n",
          nlohmann::ordered_json{{"index", i}, {"image", arguments.images[i]}, {"labels", labels}}
              .dump());
    else
      print_out("{}{}  {}\n{}", i > 0 ? "\n" : "", i + 1, arguments.images[i], format_table(rows));
  }
  pruning.report(program);
}

}  // namespace stof::cli
