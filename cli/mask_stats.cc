// stof mask stats: how much of the score matrix a mask leaves, at every tile size.

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/text.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"

namespace stof::cli {
namespace {

struct StatsOptions {
  MaskArguments mask;
  bool json = false;
};

struct Measured {
  mask::BlockMask block;
  mask::BlockMaskStats stats;
  double build_seconds;
};

Measured measure(const MaskSource& source) {
  const auto start = std::chrono::steady_clock::now();
  mask::BlockMask block = to_block_mask(source);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  mask::BlockMaskStats stats = mask::compute_stats(block);
  return {std::move(block), std::move(stats), spent.count()};
}

void print_json(const MaskSource& source, const Measured& measured) {
  const mask::ScoreShape& shape = source.shape;
  const nlohmann::ordered_json json = {
      {"mask", source.title},
      {"shape",
       {{"batch", shape.batch},
        {"num_heads", shape.num_heads},
        {"seq_q", shape.seq_q},
        {"seq_kv", shape.seq_kv}}},
      {"alignment", to_string(source.alignment)},
      {"fingerprint", measured.block.fingerprint().hex()},
      {"build_seconds", measured.build_seconds},
      {"num_patterns", measured.block.num_patterns()},
      {"stats", nlohmann::ordered_json::parse(measured.stats.to_json())}};
  print_out("{}\n", json.dump());
}

void print_text(const MaskSource& source, const Measured& measured) {
  const mask::ScoreShape& shape = source.shape;
  const mask::BlockMaskStats& stats = measured.stats;
  print_out("mask     {}\n", source.title);
  print_out("shape    {} (batch, heads, queries, keys), {}\n", shape.to_string(),
            to_string(source.alignment));
  print_out("visible  {} pairs, {:.2f} %\n", human_count(stats.visible_pairs),
            100 * stats.element_density);
  print_out("rows     {} see nothing; fullest tile row / mean: {:.2f}\n",
            human_count(stats.empty_rows), stats.row_imbalance);
  print_out("stored   {} in {} pattern(s), {} distinct bitmap(s), built in {}\n",
            human_bytes(stats.memory_bytes), measured.block.num_patterns(),
            human_count(stats.distinct_bitmaps), human_duration(measured.build_seconds));
  std::vector<std::vector<std::string>> rows = {{"tile", "full", "partial", "empty", "not empty"}};
  for (const mask::TileCensus& census : stats.tiles)
    rows.push_back({fmt::format("{0} x {0}", census.tile), human_count(census.full),
                    human_count(census.partial), human_count(census.empty),
                    fmt::format("{:.2f} %", 100 * census.density())});
  print_out("\n{}", format_table(rows));
}

}  // namespace

void add_mask_stats_command(CLI::App& mask, const Program&) {
  auto options = std::make_shared<StatsOptions>();
  CLI::App& stats = *mask.add_subcommand("stats", "Count pairs and tiles");
  stats.fallthrough();
  add_mask_arguments(stats, options->mask);
  stats.add_flag("--json", options->json, "One JSON document");
  stats.footer(examples({"stof mask stats \"causal & window(256,0)\" --seq 4096",
                         "stof mask stats \"causal\" --seq 1 --seq-kv 4096 --align bottom_right",
                         "stof mask stats \"bigbird()\" --seq 4096 --heads 12 --json"}));
  stats.callback([options] {
    const MaskSource source = load_mask_source(options->mask);
    const Measured measured = measure(source);
    if (options->json)
      print_json(source, measured);
    else
      print_text(source, measured);
  });
}

}  // namespace stof::cli
