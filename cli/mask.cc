// stof mask: looks at masks without running anything.

#include <CLI/CLI.hpp>

#include "commands.h"
#include "options.h"
#include "output.h"
#include "stof/mask.h"

namespace stof::cli {

void add_mask_command(CLI::App& app, const Program& program) {
  CLI::App& mask = *app.add_subcommand("mask", "Show, measure, draw and convert masks");
  mask.require_subcommand(1);
  mask.fallthrough();
  mask.footer(
      examples({"stof mask list", "stof mask show \"causal & window(3,0)\" --seq 16 --row 9",
                "stof mask stats \"bigbird()\" --seq 4096",
                "stof mask draw \"longformer(64,16)\" --seq 512 --out longformer.png"}));
  add_mask_show_command(mask, program);
  add_mask_stats_command(mask, program);
  add_mask_draw_command(mask, program);
  add_mask_convert_command(mask, program);
  add_mask_list_command(mask, program);
}

void add_mask_list_command(CLI::App& mask, const Program&) {
  CLI::App& list = *mask.add_subcommand("list", "List what a mask expression may contain");
  list.fallthrough();
  list.footer(examples({"stof mask list"}));
  list.callback([] {
    for (const auto& entry : stof::mask::mask_help())
      print_out("{}\n    {}\n", entry.signature, entry.meaning);
    print_out("{}", "\nCombine them with ~ (not), & (and), | (or) and parentheses.\n");
  });
}

}  // namespace stof::cli
