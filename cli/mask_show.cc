// stof mask show: the keys a query sees, and a drawing in characters.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "core/bits.h"
#include "core/check.h"
#include "core/text.h"
#include "mask/draw/exact_class.h"
#include "mask_rows.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"

namespace stof::cli {
namespace {

/// Up to this many tokens a drawing shows every pair; above, this many cells a side.
constexpr std::int64_t kCells = 64;

struct ShowOptions {
  MaskArguments mask;
  std::optional<std::int64_t> row;
  std::int64_t head = 0, batch_index = 0;
  bool json = false;
};

/// Tokens a cell stands for.
std::int64_t cell_size(const mask::ScoreShape& shape) {
  return ceil_div(std::max(shape.seq_q, shape.seq_kv), kCells);
}

/// One line per cell row: its first query, then a character per cell.
std::string drawing(const MaskSource& source, const ShowOptions& options) {
  const mask::ScoreShape& shape = source.shape;
  const std::int64_t cell = cell_size(shape);
  const std::size_t label_width = std::to_string(shape.seq_q - 1).size();
  std::string ruler(label_width + 2, ' ');
  for (std::int64_t k = 0; k < shape.seq_kv; k += cell) {
    const std::size_t column = label_width + 2 + static_cast<std::size_t>(k / cell);
    const std::string label = std::to_string(k);
    if (k / cell % 8 == 0 && label.size() < 8) ruler.resize(column, ' '), ruler += label;
  }
  std::string text = ruler + "\n";
  for (std::int64_t q = 0; q < shape.seq_q; q += cell) {
    text += fmt::format("{:>{}}  ", q, label_width);
    for (std::int64_t k = 0; k < shape.seq_kv; k += cell)
      text += mask::symbol(mask::exact_class(
          source, options.batch_index, options.head,
          {q, std::min(q + cell, shape.seq_q), k, std::min(k + cell, shape.seq_kv)}));
    text += "\n";
  }
  return text;
}

void require_index(const char* option, std::int64_t value, std::int64_t extent) {
  STOF_CHECK(value < extent, kInvalidArgument, "{}: expected 0 to {}, got {}", option, extent - 1,
             value);
}

void print_row(const MaskSource& source, const ShowOptions& options) {
  const KeyRanges ranges = visible_ranges(source, options.batch_index, options.head, *options.row);
  std::int64_t count = 0;
  for (const auto& [begin, end] : ranges) count += end - begin;
  if (!options.json) {
    print_out("row {} sees {} of {} keys: {}\n", *options.row, count, source.shape.seq_kv,
              format_ranges(ranges));
    return;
  }
  nlohmann::ordered_json json = {{"mask", source.title}, {"row", *options.row}, {"count", count}};
  json["ranges"] = nlohmann::json::array();
  for (const auto& [begin, end] : ranges) json["ranges"].push_back({begin, end});
  print_out("{}\n", json.dump());
}

void print_drawing(const MaskSource& source, const ShowOptions& options) {
  const std::int64_t cell = cell_size(source.shape);
  const std::string text = drawing(source, options);
  if (options.json) {
    nlohmann::ordered_json json = {{"mask", source.title}, {"cell", cell}};
    json["rows"] = nlohmann::json::array();
    std::size_t line = text.find('\n') + 1;  // past the ruler
    const std::size_t cells = static_cast<std::size_t>(ceil_div(source.shape.seq_kv, cell));
    for (std::size_t end = 0; (end = text.find('\n', line)) != std::string::npos; line = end + 1)
      json["rows"].push_back(text.substr(end - cells, cells));
    print_out("{}\n", json.dump());
    return;
  }
  print_out("{}\n{} queries down, {} keys across; # {}, . {}{}\n\n{}", source.title,
            human_count(source.shape.seq_q), human_count(source.shape.seq_kv),
            cell == 1 ? "visible" : "all visible", cell == 1 ? "hidden" : "none",
            cell == 1 ? "" : fmt::format(", + some; a cell is {} x {} tokens", cell, cell), text);
}

void run_show(const ShowOptions& options) {
  const MaskSource source = load_mask_source(options.mask);
  require_index("--batch-index", options.batch_index, source.shape.batch);
  require_index("--head", options.head, source.shape.num_heads);
  if (!options.row) return print_drawing(source, options);
  require_index("--row", *options.row, source.shape.seq_q);
  print_row(source, options);
}

}  // namespace

void add_mask_show_command(CLI::App& mask, const Program&) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App& show = *mask.add_subcommand("show", "Print what queries see, in characters");
  show.fallthrough();
  add_mask_arguments(show, options->mask);
  show.add_option("--row", options->row, "Print the keys this query sees, as inclusive ranges")
      ->transform(whole_number(0, kMaxSequence));
  show.add_option("--head", options->head, "Which head")->transform(whole_number(0, kMaxSequence));
  show.add_option("--batch-index", options->batch_index, "Which batch entry")
      ->transform(whole_number(0, kMaxSequence));
  show.add_flag("--json", options->json, "One JSON document; ranges are half-open");
  show.footer(examples({"stof mask show \"causal & window(3,0)\" --seq 16",
                        "stof mask show \"causal & window(3,0)\" --seq 16 --row 9",
                        "stof mask show \"bigbird()\" --seq 4096"}));
  show.callback([options] { run_show(*options); });
}

}  // namespace stof::cli
