#include "stof/text_generator.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "backend/cpu/attention/pruned.h"
#include "backend/cpu/thread_scope.h"
#include "core/cancel.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/file.h"
#include "model/chat_template.h"
#include "model/decoder.h"
#include "model/decoder_fields.h"
#include "model/gemma_model.h"
#include "model/gguf_settings.h"
#include "model/gpt2_model.h"
#include "model/llama_model.h"
#include "model/pruning.h"
#include "model/subword.h"
#include "model/text_score.h"
#include "model/text_writer.h"

namespace stof {
namespace {

/// Of chat_template.jinja or tokenizer_config.json; empty where there is none, or a list of
/// several.
std::string read_chat_template(const std::string& folder) {
  constexpr std::uint64_t kMaxBytes = 16 << 20;
  const std::string own = folder + "/chat_template.jinja",
                    config = folder + "/tokenizer_config.json";
  if (file_exists(own)) return read_text_file(own, kMaxBytes);
  if (!file_exists(config)) return {};
  const model::Json json = model::read_json_file(config, kMaxBytes);
  const model::Json* value = model::JsonFields(json, config).find("chat_template");
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

/// The .gguf file that `folder` holds instead of a config.json; the folder where it does not.
std::string resolve(const std::string& path) {
  if (!is_folder(path) || file_exists(path + "/config.json")) return path;
  std::vector<std::string> found;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(path, failed))
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().string());
  STOF_CHECK(found.size() == 1, kNotFound,
             "{}: expected config.json or one .gguf file in this folder, got {} such files", path,
             found.size());
  return found[0];
}

/// By the model_type of the folder's config.json.
std::unique_ptr<const model::DecoderModel> read_model(const std::string& folder,
                                                      Checkpoint checkpoint) {
  const std::string file = folder + "/config.json";
  const model::Json json = model::read_json_file(file, model::kMaxConfigBytes);
  const std::string type = model::JsonFields(json, file).string("model_type");
  if (type == "gemma3_text" || type == "gemma3")
    return make_gemma_model(std::move(checkpoint), model::load_gemma_config(folder));
  if (type == "gpt2")
    return make_gpt2_model(std::move(checkpoint), model::load_gpt2_config(folder));
  return make_llama_model(std::move(checkpoint), model::load_llama_config(folder));
}

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end token";
    case StopReason::kStopString:
      return "stop string";
    case StopReason::kMaxTokens:
      return "token limit";
    case StopReason::kPositions:
      return "no further positions";
  }
  return "?";
}

struct TextGenerator::Impl {
  std::string path;
  std::string chat_template;
  std::unique_ptr<const model::SubwordTokenizer> tokenizer;
  model::Decoder decoder;

  Impl(std::string where, std::string chat, std::unique_ptr<const model::SubwordTokenizer> subword,
       std::unique_ptr<const model::DecoderModel> model, const LoadOptions& options)
      : path(std::move(where)),
        chat_template(std::move(chat)),
        tokenizer(std::move(subword)),
        decoder(std::move(model), options) {}

  const model::DecoderFacts& facts() const { return decoder.facts(); }

  void check_options(const GenerateOptions& options) const {
    model::check_generate_options(options);
    if (options.prune) model::check_pruning(*options.prune, decoder.place(), facts().num_heads);
  }

  /// Of prompt and answer together.
  std::int64_t most_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                           std::int64_t limit) const {
    const auto read = static_cast<std::int64_t>(prompt.size());
    return read + std::min(options.max_tokens, limit - read);
  }
  /// Throws InvalidArgument where a text has no token, or more than `limit`.
  void check_tokens(const std::string& name, std::int64_t tokens, std::int64_t limit) const {
    STOF_CHECK(tokens > 0, kInvalidArgument, "{}: expected at least one token, got none", name);
    STOF_CHECK(tokens <= limit, kInvalidArgument,
               "{}: expected at most {} tokens, the positions this model knows, got {}{}", name,
               limit, tokens,
               limit > facts().max_positions || facts().position_table
                   ? ""
                   : "; under a mask of a window and first keys in all layers, such as "
                     "\"streaming(4, 1024)\", a text may be longer");
  }

  std::vector<GeneratedText> generate(const std::vector<std::string>& prompts,
                                      const GenerateOptions& options) const;
};

TextGenerator TextGenerator::load(const std::string& given, const LoadOptions& options) {
  const std::string path = resolve(given);
  Checkpoint checkpoint = Checkpoint::open(path);
  const GgufFile* gguf = checkpoint.gguf();
  std::unique_ptr<const model::DecoderModel> model;
  std::unique_ptr<const model::SubwordTokenizer> tokenizer;
  std::string chat_template;
  if (gguf != nullptr) {
    const model::Json settings = model::gguf_settings(*gguf);
    const model::JsonFields fields(settings, path);
    tokenizer = model::read_gguf_subword(fields);
    chat_template = fields.string("tokenizer.chat_template", "");
    model = fields.string("general.architecture") == "gemma3"
                ? model::make_gemma_model(std::move(checkpoint),
                                          model::read_gguf_gemma_config(settings, path))
                : model::make_llama_model(std::move(checkpoint),
                                          model::read_gguf_llama_config(settings, path));
  } else {
    STOF_CHECK(is_folder(path), kInvalidArgument,
               "{}: expected a folder with config.json, or a .gguf file", path);
    model = read_model(path, std::move(checkpoint));
    tokenizer = model::load_subword(path);
    chat_template = read_chat_template(path);
  }
  const model::DecoderFacts& facts = model->facts();
  STOF_CHECK(tokenizer->num_ids() <= facts.vocab_size, kCorrupt,
             "{}: expected token ids below the model's vocabulary size, {}, got {}", path,
             facts.vocab_size, tokenizer->num_ids() - 1);
  for (const std::int32_t id : facts.end_tokens)
    STOF_CHECK(id < facts.vocab_size, kCorrupt, "{}: eos_token_id: expected an id below {}, got {}",
               path, facts.vocab_size, id);
  return TextGenerator(std::make_shared<const Impl>(
      path, std::move(chat_template), std::move(tokenizer), std::move(model), options));
}

std::int64_t TextGenerator::num_layers() const { return impl_->facts().num_layers; }
std::int64_t TextGenerator::num_heads() const { return impl_->facts().num_heads; }
std::int64_t TextGenerator::vocab_size() const { return impl_->facts().vocab_size; }
std::int64_t TextGenerator::max_positions() const { return impl_->facts().max_positions; }

std::string TextGenerator::describe() const { return impl_->facts().description; }

std::string TextGenerator::place() const { return impl_->decoder.place(); }
std::string TextGenerator::place_note() const { return impl_->decoder.place_note(); }

std::vector<std::int32_t> TextGenerator::tokenize(const std::string& text) const {
  return impl_->tokenizer->encode(text);
}

std::string TextGenerator::token(std::int32_t id) const { return impl_->tokenizer->token(id); }

std::string TextGenerator::chat_prompt(const std::vector<ChatMessage>& messages) const {
  return model::render_chat(impl_->chat_template, messages, impl_->path);
}

std::string TextGenerator::detokenize(const std::vector<std::int32_t>& ids) const {
  return impl_->tokenizer->decode(ids);
}

Tensor TextGenerator::logits(const std::vector<std::int32_t>& ids,
                             const GenerateOptions& options) const {
  impl_->check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  const cpu::PruneScope pruning(options.prune ? &*options.prune : nullptr);
  const auto count = static_cast<std::int64_t>(ids.size());
  auto sequence = impl_->decoder.start({.tokens = count,
                                        .chunk = std::min(count, options.prefill_chunk),
                                        .mask = options.mask,
                                        .logit_rows = std::min(count, options.prefill_chunk)});
  exec::RunTiming timing;
  Tensor all(DType::kFloat32, {count, vocab_size()});
  float* out = all.as<float>().data();
  const auto chunk = static_cast<std::size_t>(options.prefill_chunk);
  for (std::size_t at = 0; at < ids.size(); at += std::min(chunk, ids.size() - at)) {
    const auto part = std::span(ids).subspan(at, std::min(chunk, ids.size() - at));
    check_cancelled();
    const Tensor logits =
        sequence->forward({{0, part, static_cast<std::int64_t>(part.size())}}, timing);
    out = std::copy(logits.as<float>().begin(), logits.as<float>().end(), out);
  }
  return all;
}

TextScore TextGenerator::score(const std::vector<std::int32_t>& ids,
                               const ScoreOptions& options) const {
  return model::score_text(impl_->decoder, ids, options);
}

std::vector<GeneratedText> TextGenerator::Impl::generate(const std::vector<std::string>& prompts,
                                                         const GenerateOptions& options) const {
  check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  const cpu::PruneScope pruning(options.prune ? &*options.prune : nullptr);
  const std::size_t count = prompts.size();
  std::vector<std::unique_ptr<model::TextWriter>> writers;
  for (std::size_t i = 0; i < count; ++i)
    writers.push_back(
        std::make_unique<model::TextWriter>(*tokenizer, options, /*begins_text=*/false));

  const auto prefill_start = Clock::now();
  std::vector<std::vector<std::int32_t>> ids;
  const std::int64_t limit = decoder.most_tokens(options.mask);
  std::int64_t most = 0;  // tokens of a sequence
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(tokenizer->encode(prompts[i]));
    const auto tokens = static_cast<std::int64_t>(ids[i].size());
    const std::string name = count == 1 ? "prompt" : fmt::format("prompt {}", i);
    check_tokens(name, tokens, limit);
    writers[i]->result.prompt_tokens = tokens;
    most = std::max(most, most_tokens(ids[i], options, limit));
  }
  auto sequences = decoder.start({.count = static_cast<std::int64_t>(count),
                                  .tokens = most,
                                  .chunk = std::min(most, options.prefill_chunk),
                                  .mask = options.mask});
  exec::RunTiming timing;
  std::vector<model::DecoderSequences::Part> parts;
  std::vector<std::vector<float>> logits(count);  // that the next token of each is chosen by
  const auto forward = [&] {
    check_cancelled();
    const Tensor rows = sequences->forward(parts, timing);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto width = static_cast<std::size_t>(facts().vocab_size);
      const auto row = rows.as<float>().subspan(i * width, width);
      logits[static_cast<std::size_t>(parts[i].sequence)].assign(row.begin(), row.end());
    }
  };
  std::vector<std::size_t> read(count);
  for (;;) {
    parts.clear();
    auto left = static_cast<std::size_t>(options.prefill_chunk);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t take = std::min(left, ids[i].size() - read[i]);
      if (take == 0) continue;
      parts.push_back({static_cast<std::int64_t>(i), std::span(ids[i]).subspan(read[i], take)});
      read[i] += take;
      left -= take;
    }
    if (parts.empty()) break;
    forward();
  }
  const double prefill = seconds_since(prefill_start);

  const auto decode_start = Clock::now();
  std::vector<bool> goes_on(count, true);
  for (;;) {
    parts.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (!goes_on[i]) continue;
      const auto sequence = static_cast<std::int64_t>(i);
      const bool last = sequences->length(sequence) == limit;
      goes_on[i] = writers[i]->next(logits[i], facts().end_tokens, last);
      if (goes_on[i]) parts.push_back({sequence, std::span(writers[i]->result.ids).last(1)});
    }
    if (parts.empty()) break;
    forward();
  }
  std::vector<GeneratedText> results;
  for (const auto& writer : writers) {
    GeneratedText& result = results.emplace_back(std::move(writer->result));
    result.prefill = prefill;
    result.decode = seconds_since(decode_start);
    result.plan = timing.plan;
    result.attention = timing.attention;
    result.cached_tokens = sequences->pages_each() * model::kCachePage;
  }
  return results;
}

GeneratedText TextGenerator::generate(const std::string& prompt,
                                      const GenerateOptions& options) const {
  return std::move(impl_->generate({prompt}, options)[0]);
}

std::vector<GeneratedText> TextGenerator::generate_all(const std::vector<std::string>& prompts,
                                                       const GenerateOptions& options) const {
  STOF_CHECK(!options.on_text, kInvalidArgument,
             "on_text: expected none with several prompts, whose pieces it could not tell apart");
  if (prompts.empty()) return {};
  return impl_->generate(prompts, options);
}

}  // namespace stof
