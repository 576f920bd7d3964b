// stof run: embeds texts with a checkpoint or continues a prompt, with any attention mask.

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>

#include "classify.h"
#include "commands.h"
#include "core/check.h"
#include "generate.h"
#include "mask_source.h"
#include "model/sentence_config.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "perplexity.h"
#include "place.h"
#include "progress.h"
#include "prune.h"
#include "rewrite.h"
#include "run_report.h"
#include "stof/npy.h"
#include "texts.h"
#include "tune/stopwatch.h"
#include "tuning.h"

namespace stof::cli {
namespace {

struct RunOptions {
  std::vector<std::string> texts;
  std::string file;
  std::string model = default_model_folder();
  std::string task = "embed";
  std::string mask = "all";
  PlaceArguments place;
  PruneArguments prune;
  std::string tune = "cached", tune_budget = "30s";
  std::int64_t batch = 32;
  std::int64_t max_tokens = 0;
  std::int64_t window = 0, stride = 0;  ///< of --task perplexity
  int threads = 0;
  bool json = false, timing = false;
  std::string output;
  GenerateArguments generate;                 ///< with --prompt
  std::string source = "en", target, prefix;  ///< of --task translate and summarise
};

LoadOptions load_options(const RunOptions& options) {
  parse_budget("--tune-budget", options.tune_budget);
  LoadOptions load = load_options(options.place);
  place_for_pruning(options.prune, load);
  load.tuning = options.tune == "off" ? Tuning::kOff : Tuning::kCached;
  return load;
}

/// Refuses what has no meaning beside --prompt: options are honoured or refused.
void continue_prompt(RunOptions& options, const CLI::App& command, const Program& program) {
  for (const char* name :
       {"TEXT", "--file", "--task", "--tune", "--tune-budget", "--batch", "--output", "--timing"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument, "{}: expected none beside --prompt",
               name);
  STOF_CHECK(command.count("--prompt") == 0 || command.count("--prompt-file") == 0,
             kInvalidArgument, "--prompt-file: expected none beside --prompt");
  GenerateArguments& generate = options.generate;
  generate.load = load_options(options);
  generate.model = command.count("--model") > 0 ? options.model : default_generator_folder();
  generate.mask = options.mask;
  generate.prune = options.prune;
  generate.max_tokens = options.max_tokens;
  generate.threads = options.threads;
  generate.json = options.json;
  generate_text(generate, program);
}

EncodeOptions encode_options(const RunOptions& options) {
  EncodeOptions encode;
  encode.mask = load_mask_set(options.mask);
  encode.max_tokens = options.max_tokens;
  encode.batch = options.batch;
  encode.num_threads = options.threads;
  return encode;
}

/// Rows of all texts one below the other: [sum of tokens, hidden].
Tensor concatenated(const std::vector<Tensor>& states, std::int64_t hidden) {
  std::int64_t rows = 0;
  for (const Tensor& state : states) rows += state.shape()[0];
  Tensor all(DType::kFloat32, {rows, hidden});
  auto* next = static_cast<std::byte*>(all.data());
  for (const Tensor& state : states) {
    std::copy_n(static_cast<const std::byte*>(state.data()), state.bytes(), next);
    next += state.bytes();
  }
  return all;
}

/// Before the first batch: sessions ask for records when they first see a number of rows.
void tune_for(const RunOptions& options, const std::vector<EncodedText>& texts,
              const TextEncoder& encoder, const Program& program) {
  ModelArguments arguments;
  arguments.model = model::load_sentence_config(options.model).model_folder;
  arguments.mask = options.mask;
  arguments.device = encoder.place().starts_with("CPU") ? "cpu" : "cuda";
  arguments.dtype = options.place.dtype;
  arguments.threads = options.threads;
  std::vector<std::int64_t> lengths;
  lengths.reserve(texts.size());
  for (const EncodedText& text : texts)
    lengths.push_back(static_cast<std::int64_t>(text.ids.size()));
  tune_missing(arguments, lengths, options.batch,
               parse_budget("--tune-budget", options.tune_budget), program);
}

/// Refuses what has no meaning for images.
void classify_files(const RunOptions& options, const CLI::App& command, const Program& program) {
  for (const char* name :
       {"--file", "--tune", "--tune-budget", "--max-tokens", "--output", "--timing"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument,
               "{}: expected none beside --task classify", name);
  STOF_CHECK(command.count("--model") > 0, kInvalidArgument,
             "--model: with --task classify expected the folder of a ViT checkpoint, got none");
  STOF_CHECK(options.place.device != "cuda" &&
                 (options.place.dtype == "auto" || options.place.dtype == "fp32"),
             kUnsupported,
             "--device, --dtype: images are classified on the CPU in fp32, got {}, {}",
             options.place.device, options.place.dtype);
  ClassifyArguments arguments;
  arguments.images = options.texts;
  arguments.model = options.model;
  arguments.mask = options.mask;
  arguments.prune = options.prune;
  if (options.generate.top_k > 0) arguments.count = options.generate.top_k;
  if (command.count("--batch") > 0) arguments.batch = options.batch;
  arguments.threads = options.threads;
  arguments.json = options.json;
  classify_images(arguments, program);
}

void score_texts(const RunOptions& options, const CLI::App& command, const Program& program) {
  for (const char* name : {"--tune", "--tune-budget", "--batch", "--max-tokens", "--timing"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument,
               "{}: expected none beside --task perplexity", name);
  PerplexityArguments arguments;
  arguments.texts = options.texts;
  arguments.file = options.file;
  arguments.model = command.count("--model") > 0 ? options.model : default_generator_folder();
  arguments.load = load_options(options);
  arguments.mask = options.mask;
  arguments.prune = options.prune;
  arguments.window = options.window;
  arguments.stride = options.stride;
  arguments.threads = options.threads;
  arguments.json = options.json;
  arguments.output = options.output;
  print_perplexity(arguments, program);
}

/// Refuses what has no meaning for translations and summaries.
void rewrite(const RunOptions& options, const CLI::App& command, const Program& program) {
  const bool translates = options.task == "translate";
  for (const char* name : {"--tune", "--tune-budget", "--output", "--timing", "--chat", "--prune"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument, "{}: expected none beside --task {}",
               name, options.task);
  const bool has_prefix = command.count("--prefix") > 0;
  for (const char* name : {"--source", "--target"})
    STOF_CHECK(command.count(name) == 0 || (translates && !has_prefix), kInvalidArgument,
               "{}: expected none beside {}", name,
               has_prefix ? "--prefix, which says it all" : "--task summarise");
  STOF_CHECK(!translates || has_prefix || !options.target.empty(), kInvalidArgument,
             "--target: with --task translate expected the language to translate to, or --prefix, "
             "got none");
  STOF_CHECK(command.count("--model") > 0, kInvalidArgument,
             "--model: with --task {} expected the folder of a T5 checkpoint, got none",
             options.task);
  RewriteArguments arguments;
  arguments.texts = read_texts(options.texts, options.file);
  arguments.model = options.model;
  arguments.mask = options.mask;
  arguments.translates = translates;
  arguments.source = options.source;
  arguments.target = options.target;
  if (has_prefix) arguments.prefix = options.prefix;
  arguments.max_tokens = options.max_tokens;
  if (command.count("--batch") > 0) arguments.batch = options.batch;
  arguments.threads = options.threads;
  arguments.json = options.json;
  arguments.sampling = options.generate;
  arguments.load = load_options(options);
  rewrite_texts(arguments, program);
}

void run_texts(RunOptions& options, const CLI::App& command, const Program& program) {
  const bool scores = options.task == "perplexity";
  for (const char* name : {"--window", "--stride"})
    STOF_CHECK(scores || command.count(name) == 0, kInvalidArgument,
               "{}: expected --task perplexity beside it", name);
  if (command.count("--prompt") > 0 || command.count("--prompt-file") > 0) {
    continue_prompt(options, command, program);
    return;
  }
  if (options.task == "translate" || options.task == "summarise" || options.task == "summarize") {
    rewrite(options, command, program);
    return;
  }
  for (const char* name : {"--source", "--target", "--prefix"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument,
               "{}: expected --task translate or summarise beside it", name);
  for (const char* name : {"--chat", "--temperature", "--top-p", "--seed", "--stop"})
    STOF_CHECK(command.count(name) == 0, kInvalidArgument,
               "{}: expected --prompt, or --task translate or summarise, beside it", name);
  const bool fills = options.task == "fill-mask", classifies = options.task == "classify";
  STOF_CHECK(fills || classifies || command.count("--top-k") == 0, kInvalidArgument,
             "--top-k: expected --prompt or --task fill-mask or classify beside it");
  if (scores) {
    score_texts(options, command, program);
    return;
  }
  if (classifies) {
    classify_files(options, command, program);
    return;
  }
  STOF_CHECK(!fills || options.output.empty(), kInvalidArgument,
             "--output: expected none beside --task fill-mask, which gives no embeddings");
  const LoadOptions load = load_options(options);
  const std::vector<std::string> texts = read_texts(options.texts, options.file);
  ProgressBar bar("embedding", static_cast<std::int64_t>(texts.size()), program.quiet);
  EncodeOptions encode = encode_options(options);
  Pruning pruning(options.prune);
  encode.prune = pruning.options();
  if (!options.output.empty()) require_writable("--output", options.output);

  const tune::Stopwatch since_start;
  const TextEncoder encoder = load_encoder(options.model, load);
  double loaded = since_start.seconds();
  if (load.place == Place::kAuto) report_place(encoder.place(), encoder.place_note(), program);
  std::vector<EncodedText> tokens;
  tokens.reserve(texts.size());
  for (const std::string& text : texts)
    tokens.push_back(encoder.tokenize(text, options.max_tokens));

  if (options.tune == "on") {
    const double before = since_start.seconds();
    tune_for(options, tokens, encoder, program);
    loaded += since_start.seconds() - before;
  }
  double first = 0;
  const auto count = [&](std::int64_t done, std::int64_t) {
    bar.update(done);
    if (first == 0 && done > 0) first = since_start.seconds() - loaded;
  };
  encode.progress = count;
  const RunReport report{texts, tokens, options.json};
  if (options.task == "embed") {
    const Tensor embeddings = encoder.embed(texts, encode);
    if (!options.output.empty()) save_npy(options.output, embeddings.view());
    print_embeddings(report, embeddings);
  } else if (fills) {
    constexpr std::int64_t kShown = 5;
    const std::int64_t asked = options.generate.top_k;
    print_filled_masks(report, encoder.fill_mask(texts, asked > 0 ? asked : kShown, encode));
  } else {
    const std::vector<Tensor> states = encoder.encode_tokens(texts, encode);
    if (!options.output.empty())
      save_npy(options.output, concatenated(states, encoder.hidden_size()).view());
    print_token_states(report, states);
  }
  pruning.report(program);
  if (options.timing)
    write_note(
        fmt::format("weights loaded in {:.3f} s, first result {:.3f} s later", loaded, first));
}

}  // namespace

void add_run_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& run_command =
      *app.add_subcommand("run", "Embed texts with an encoder or continue a prompt with a decoder");
  run_command.fallthrough();
  run_command.add_option(
      "TEXT", options->texts,
      "Texts; after -- they may begin with a dash; with --task classify PNG or JPEG "
      "files");
  run_command.add_option("--file", options->file, "One text per line; - is standard input");
  run_command
      .add_option(
          "--model", options->model,
          "Hugging Face folder: config.json, model.safetensors, vocab.txt or tokenizer.json; "
          "with --prompt also a .gguf file (default: SmolLM2)")
      ->capture_default_str();
  run_command
      .add_option(
          "--task", options->task,
          "embed: one vector per text; tokens: one per token; fill-mask: what may stand for "
          "[MASK] or <mask> in a text; classify: the labels of images; perplexity: how well a "
          "decoder expects texts, or a --file as a whole; translate, summarise: a text for each, "
          "by "
          "T5")
      ->check(one_of({"embed", "tokens", "fill-mask", "classify", "perplexity", "translate",
                      "summarise", "summarize"}))
      ->capture_default_str();
  run_command
      .add_option(
          "--mask", options->mask,
          "Mask expression (stof mask list shows the words), or a .txt, .npy or .json file; the "
          "latter may give layers and heads masks of their own")
      ->capture_default_str();
  add_prune_arguments(run_command, options->prune);
  add_place_arguments(run_command, options->place);
  run_command
      .add_option("--tune", options->tune,
                  "cached: use what stof tune found here for the model; on: tune first what is "
                  "missing; off: the rules' choices")
      ->check(one_of({"off", "cached", "on"}))
      ->capture_default_str();
  run_command.add_option("--tune-budget", options->tune_budget, "Time that --tune on may spend")
      ->capture_default_str();
  run_command.add_option("--batch", options->batch, "Texts per forward pass")
      ->transform(whole_number(1, 65536))
      ->capture_default_str();
  run_command
      .add_option("--max-tokens", options->max_tokens,
                  "Cut longer texts (default: model's limit); with --prompt, --task translate or "
                  "summarise write at most so many (default: the task's in config.json, or 256)")
      ->transform(whole_number(1, kMaxSequence));
  run_command.add_option("--threads", options->threads, "Threads (default: all cores)")
      ->transform(whole_number(1, 1024));
  run_command.add_flag("--json", options->json, "One JSON object per text and line");
  run_command.add_flag("--timing", options->timing,
                       "Say how long loading the weights took, and the first batch after it");
  run_command.add_option(
      "--output", options->output,
      "Also write float32 .npy: [texts, hidden], or [all tokens, hidden], or with --task "
      "perplexity the log-likelihoods, [all tokens]");
  GenerateArguments& generate = options->generate;
  run_command.add_option("--prompt", generate.prompt, "Continue this text with a decoder");
  run_command.add_option("--prompt-file", generate.prompt_file,
                         "Continue the text in this file; - is standard input");
  run_command
      .add_option("--window", options->window,
                  "With --task perplexity: tokens that are read together (default: as many as the "
                  "model takes)")
      ->transform(whole_number(2, kMaxSequence));
  run_command
      .add_option("--stride", options->stride,
                  "With --task perplexity: tokens from one window to the next (default: --window)")
      ->transform(whole_number(1, kMaxSequence));
  run_command.add_flag("--chat", generate.chat,
                       "The prompt is a message to an instruct model, to be answered");
  run_command.add_option("--temperature", generate.temperature, "0: always the likeliest token")
      ->capture_default_str();
  run_command
      .add_option("--top-k", generate.top_k,
                  "Choose among the k likeliest tokens; with --task fill-mask or classify show "
                  "so many (default: 5)")
      ->transform(whole_number(1, kMaxSequence));
  run_command
      .add_option("--top-p", generate.top_p, "Choose among the likeliest of this probability")
      ->capture_default_str();
  run_command.add_option("--seed", generate.seed, "Of the random choices")
      ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  run_command.add_option("--stop", generate.stop, "End before this string; may be repeated")
      ->expected(1)
      ->take_all();
  run_command
      .add_option("--source", options->source,
                  "With --task translate, the language of the texts: a code (en, de, fr, ro, or "
                  "what the model names) or an English name")
      ->capture_default_str();
  run_command.add_option("--target", options->target, "The language to translate to");
  run_command.add_option("--prefix", options->prefix,
                         "With --task translate or summarise, what to put in front of a text in "
                         "place of the model's words");
  run_command.footer(
      examples({"stof run \"How do I sort a list?\" \"Sorting lists in Python\"",
                "stof run --file sentences.txt --output embeddings.npy",
                "echo \"a text\" | stof run --file - --json | head -c 300",
                "stof run --prompt \"Once upon a time\" --max-tokens 60 --device cpu",
                "stof run --task perplexity --file README.md --window 512 --stride 256",
                "stof run --chat --prompt \"What is a hash table?\" --temperature 0.7 --seed 1",
                "stof run --task translate --target de --model DIR \"The house is small.\"",
                "stof run \"a long text\" --prune \"block_topk(0.5,block=16)\"",
                "stof run \"a long text\" --mask \"window(32,32) | global(1,1)\" --task tokens"}));
  run_command.callback(
      [options, &run_command, &program] { run_texts(*options, run_command, program); });
}

}  // namespace stof::cli
