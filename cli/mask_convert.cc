// stof mask convert: between an expression's text and JSON, a bool array and the block format.

#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "core/check.h"
#include "core/file.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"
#include "stof/npy.h"

namespace stof::cli {
namespace {

struct ConvertOptions {
  MaskArguments mask;
  std::string to;
  std::string out;
};

/// The mask as an expression; a stored block mask becomes an array first.
mask::Mask expression_of(const MaskArguments& arguments) {
  if (!arguments.source.ends_with(".safetensors")) return load_mask_expression(arguments);
  const Tensor array = to_dense(load_mask_source(arguments));
  return mask::dense(array.view());
}

void write_text(const ConvertOptions& options, const std::string& text) {
  if (options.out.empty())
    print_out("{}\n", text);
  else
    write_file(options.out, text + "\n");
}

void run_convert(const ConvertOptions& options) {
  const bool is_text = options.to == "text" || options.to == "json";
  STOF_CHECK(is_text || !options.out.empty(), kInvalidArgument,
             "--out: expected a file name, got none; --to {} is binary and needs one", options.to);
  if (!options.out.empty()) require_writable("--out", options.out);
  if (options.to == "text") return write_text(options, expression_of(options.mask).to_text());
  if (options.to == "json") return write_text(options, expression_of(options.mask).to_json());
  const MaskSource source = load_mask_source(options.mask);
  if (options.to == "block") return to_block_mask(source).save(options.out);
  save_npy(options.out, to_dense(source).view());
}

}  // namespace

void add_mask_convert_command(CLI::App& mask, const Program&) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App& convert = *mask.add_subcommand("convert", "Write a mask in another form");
  convert.fallthrough();
  add_mask_arguments(convert, options->mask);
  convert
      .add_option("--to", options->to,
                  "Canonical text, JSON, block mask (.safetensors) or bool array (.npy)")
      ->required()
      ->check(one_of({"text", "json", "block", "npy"}));
  convert.add_option("--out", options->out, "File to write; text and json default to the screen");
  convert.footer(
      examples({"stof mask convert \"window(256,0) & causal\" --to text",
                "stof mask convert \"bigbird()\" --to json --out bigbird.json",
                "stof mask convert bigbird.json --seq 4096 --to block --out bigbird.safetensors"}));
  convert.callback([options] { run_convert(*options); });
}

}  // namespace stof::cli
