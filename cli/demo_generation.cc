#include "demo_generation.h"

#include <algorithm>

#include "core/text.h"
#include "generate.h"
#include "output.h"
#include "stof/text_generator.h"

namespace stof::cli {

void show_generation(const DemoGeneration& demo, const Program& program) {
  LoadOptions load;
  load.place = Place::kAuto;
  const TextGenerator generator = load_generator(demo.model, load, program);
  std::string document = demo.document;
  if (demo.read_tokens > 0) {
    std::vector<std::int32_t> ids = generator.tokenize(document);
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(demo.read_tokens)));
    document = generator.detokenize(ids);
  }
  GenerateOptions options;
  options.mask = mask::streaming(4, 1020);
  options.max_tokens = 60;
  options.num_threads = demo.threads;
  print_out(
      "3. A question about the document, answered under a window mask\n\n   {}, on {}\n"
      "   streaming(4, 1020): a token sees itself, the 1,020 before it and the first 4\n\n   > ",
      generator.describe(), generator.place());
  flush_output();
  options.on_text = [](std::string_view text) {
    for (const char c : text) write_output(c == '\n' ? "\n   > " : std::string(1, c));
    flush_output();
  };
  const GeneratedText result = generator.generate(
      generator.chat_prompt(
          {{"user", document + "\n\nSay in one sentence what the text above is about."}}),
      options);
  print_out("\n\n   {} tokens read in {}, {} written in {}; caches for {} tokens\n\n",
            human_count(result.prompt_tokens), human_duration(result.prefill), result.ids.size(),
            human_duration(result.decode), human_count(result.cached_tokens));
}

}  // namespace stof::cli
