// stof demo: real sentences, a real document under three masks, a question about it, pictures.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "core/check.h"
#include "core/text.h"
#include "demo_generation.h"
#include "demo_texts.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "similarity.h"
#include "stof/block_mask.h"
#include "stof/mask_draw.h"
#include "texts.h"

namespace stof::cli {
namespace {

struct DemoOptions {
  std::string model = default_model_folder();
  std::string generator = default_generator_folder();
  std::string document = "/usr/share/common-licenses/GPL-3";
  std::string out = "demo-out";
  /// More than sentence-transformers cuts at for some checkpoints, but what BERT's positions allow.
  std::int64_t piece_tokens = 512;
  std::int64_t read_tokens = 0;  ///< of the document, by the generator; 0: all
  int threads = 0;
};

struct DemoMask {
  std::string name;  ///< of its picture
  std::string text;
  mask::Mask mask = mask::parse(text);
};

/// Sized for 512 tokens, which is eight 64x64 tiles a side.
std::vector<DemoMask> demo_masks() {
  return {{"dense", "all"},
          {"sliding", "sliding(64)"},
          {"bigbird", "bigbird(block=32, window_blocks=1, global_blocks=1, random_count=1)"}};
}

std::string picture_path(const DemoOptions& options, const DemoMask& entry) {
  return options.out + "/" + entry.name + ".png";
}

/// Before any long work: the folder exists and every picture can be written.
void prepare_output(const DemoOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  STOF_CHECK(!error, kIo, "--out: {}: cannot be created: {}", options.out, error.message());
  for (const DemoMask& entry : demo_masks())
    require_writable("--out", picture_path(options, entry));
}

void show_sentences(const TextEncoder& encoder, const DemoOptions& options) {
  EncodeOptions encode;
  encode.num_threads = options.threads;
  EncodeTiming timing;
  const std::vector<std::string>& sentences = demo_sentences();
  const Tensor embeddings = encoder.embed(sentences, encode, &timing);
  print_out("1. Sentences and how alike they are ({})\n\n", human_duration(timing.total));
  for (std::size_t i = 0; i < sentences.size(); ++i) print_out("   {}  {}\n", i + 1, sentences[i]);
  print_out("\n{}\n", similarity_table(embeddings, embeddings.shape()[0]));
}

/// 64x64 tiles of all pieces.
mask::TileCensus census_of(const mask::Mask& mask, const std::vector<std::int64_t>& lengths,
                           std::int64_t num_heads) {
  mask::TileCensus sum;
  for (const std::int64_t length : lengths) {
    const mask::BlockMask block = mask::build_block_mask(mask, {1, num_heads, length, length});
    for (const mask::TileCensus& census : mask::compute_stats(block).tiles) {
      if (census.tile != mask::kOuterTile) continue;
      sum.full += census.full;
      sum.partial += census.partial;
      sum.empty += census.empty;
    }
  }
  return sum;
}

double mean_cosine(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.shape()[0]; ++i) sum += cosine(tensor_row(a, i), tensor_row(b, i));
  return sum / static_cast<double>(a.shape()[0]);
}

std::string read_option_document(const DemoOptions& options) {
  try {
    return read_document(options.document);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("--document: ") + error.what());
  }
}

void show_document(const TextEncoder& encoder, const DemoOptions& options, const Program& program) {
  const std::int64_t max_tokens = options.piece_tokens;
  const std::vector<std::string> pieces =
      split_document(encoder, read_option_document(options), max_tokens);
  STOF_CHECK(!pieces.empty(), kInvalidArgument, "--document: {}: expected some text, got none",
             options.document);
  std::vector<std::int64_t> lengths;
  std::int64_t num_tokens = 0;
  for (const std::string& piece : pieces) {
    lengths.push_back(static_cast<std::int64_t>(encoder.tokenize(piece, max_tokens).ids.size()));
    num_tokens += lengths.back();
  }
  print_out(
      "2. A long document under three masks\n\n   {}: {} tokens in {} pieces of at most {}\n\n",
      options.document, human_count(num_tokens), pieces.size(), max_tokens);

  std::vector<std::vector<std::string>> rows = {
      {"mask", "full", "partial", "skipped", "attention", "in all", "cosine to dense"}};
  const std::vector<DemoMask> masks = demo_masks();
  for (const DemoMask& entry : masks) print_out("   {:<8} {}\n", entry.name, entry.text);
  flush_output();
  const auto num_pieces = static_cast<std::int64_t>(pieces.size());
  ProgressBar bar("document", num_pieces * static_cast<std::int64_t>(masks.size()), program.quiet);
  Tensor dense;
  std::int64_t finished = 0;
  for (const DemoMask& entry : masks) {
    EncodeOptions encode;
    encode.mask = entry.mask;
    encode.max_tokens = max_tokens;
    encode.num_threads = options.threads;
    encode.batch = 4;  // so that the bar moves
    encode.progress = [&](std::int64_t done, std::int64_t) { bar.update(finished + done); };
    EncodeTiming timing;
    const Tensor embeddings = encoder.embed(pieces, encode, &timing);
    finished += num_pieces;
    if (dense.empty()) dense = embeddings;
    const mask::TileCensus census = census_of(entry.mask, lengths, encoder.num_heads());
    rows.push_back({entry.name, human_count(census.full), human_count(census.partial),
                    human_count(census.empty), human_duration(timing.attention),
                    human_duration(timing.total),
                    fmt::format("{:.4f}", mean_cosine(embeddings, dense))});
  }
  print_out(
      "\n{}\n   Tiles are 64 x 64 pairs, over all pieces and {} heads of one layer. Cosine is "
      "the mean over the pieces.\n\n",
      format_table(rows), encoder.num_heads());
}

void draw_masks(const DemoOptions& options) {
  print_out("4. Pictures: pairs on the left, tiles on the right\n\n");
  for (const DemoMask& entry : demo_masks()) {
    const mask::ScoreShape shape{1, 1, options.piece_tokens, options.piece_tokens};
    mask::DrawOptions draw;
    draw.title = entry.name;
    const mask::Image elements =
        mask::draw_elements(entry.mask, shape, mask::Alignment::kTopLeft, draw);
    draw.title = "64x64 tiles";
    const mask::Image tiles = mask::draw_tiles(mask::build_block_mask(entry.mask, shape), draw);
    const std::string path = picture_path(options, entry);
    mask::save_png(mask::beside(elements, tiles), path);
    print_out("   {}\n", path);
  }
}

void run_demo(const DemoOptions& options, const Program& program) {
  prepare_output(options);
  LoadOptions load;
  load.place = Place::kAuto;
  const TextEncoder encoder = load_encoder(options.model, load);
  report_place(encoder.place(), encoder.place_note(), program);
  print_out("{}\n\n", encoder.describe());
  show_sentences(encoder, options);
  flush_output();  // something to read while the document is worked on
  show_document(encoder, options, program);
  flush_output();
  show_generation(
      {options.generator, read_option_document(options), options.read_tokens, options.threads},
      program);
  draw_masks(options);
  print_out(
      "\nTry next:\n"
      "   {0} run \"your own sentence\" \"and another one\"\n"
      "   {0} mask show \"causal & window(3,0) | global(cols=1)\" --seq 16\n"
      "   {0} bench attention --seq 4096    (where skipped tiles save most of the time)\n"
      "   {0} demo --document README.md\n",
      program.name);
}

}  // namespace

void add_demo_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App& demo = *app.add_subcommand("demo", "Show what stof does, on real text");
  demo.fallthrough();
  demo.add_option("--document", options->document, "Long UTF-8 text")->capture_default_str();
  demo.add_option("--out", options->out, "Folder for the pictures")->capture_default_str();
  demo.add_option("--model", options->model, "Hugging Face folder of an encoder")
      ->capture_default_str();
  demo.add_option("--generator", options->generator,
                  "Hugging Face folder or .gguf file of a decoder that answers questions")
      ->capture_default_str();
  demo.add_option("--read-tokens", options->read_tokens,
                  "Tokens of the document that it reads (default: all)")
      ->transform(whole_number(1, kMaxSequence));
  demo.add_option("--piece-tokens", options->piece_tokens, "Tokens per piece of the document")
      ->transform(whole_number(16, 65536))
      ->capture_default_str();
  demo.add_option("--threads", options->threads, "Threads (default: all cores)")
      ->transform(whole_number(1, 1024));
  demo.footer(examples({"stof demo", "stof demo --document README.md --out pictures"}));
  demo.callback([options, &program] { run_demo(*options, program); });
}

}  // namespace stof::cli
