#include "stof/text_generator.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "backend/cpu/thread_scope.h"
#include "core/check.h"
#include "core/file.h"
#include "model/bpe.h"
#include "model/chat_template.h"
#include "model/gguf_settings.h"
#include "model/llama_decoder.h"
#include "model/sampler.h"
#include "model/stop_strings.h"
#include "model/utf8_stream.h"

namespace stof {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
  model::Bpe tokenizer;
  model::LlamaDecoder decoder;

  const model::LlamaConfig& config() const { return decoder.config(); }

  void check_options(const GenerateOptions& options) const {
    STOF_CHECK(options.max_tokens >= 1, kInvalidArgument, "max_tokens: expected at least 1, got {}",
               options.max_tokens);
    STOF_CHECK(options.prefill_chunk >= 1, kInvalidArgument,
               "prefill_chunk: expected at least 1, got {}", options.prefill_chunk);
    STOF_CHECK(options.num_threads >= 0, kInvalidArgument,
               "num_threads: expected 0 (all) or more, got {}", options.num_threads);
    STOF_CHECK(options.mask.batch_extent() == 1, kInvalidArgument,
               "mask: expected one without batch entries, got {}", options.mask.batch_extent());
    const std::int64_t heads = options.mask.head_extent();
    STOF_CHECK(heads == 1 || heads == config().num_heads, kInvalidArgument,
               "mask: expected one mask for all heads or one for each of {}, got {}",
               config().num_heads, heads);
  }

  /// Calls use(first token, logits) after each chunk.
  template <class Use>
  void read(std::span<const std::int32_t> ids, const GenerateOptions& options,
            model::KvCache& cache, model::LlamaDecoder::Rows rows, model::DecoderTiming& timing,
            Use use) const {
    const auto chunk = static_cast<std::size_t>(options.prefill_chunk);
    for (std::size_t at = 0; at < ids.size(); at += std::min(chunk, ids.size() - at)) {
      const auto part = ids.subspan(at, std::min(chunk, ids.size() - at));
      use(at, decoder.forward(part, cache, options.mask, rows, timing));
    }
  }

  bool ends(std::int32_t id) const {
    const auto& ends = config().end_tokens;
    return std::find(ends.begin(), ends.end(), id) != ends.end();
  }
};

TextGenerator TextGenerator::load(const std::string& given) {
  const std::string path = resolve(given);
  Checkpoint checkpoint = Checkpoint::open(path);
  const GgufFile* gguf = checkpoint.gguf();
  model::LlamaConfig config;
  model::BpeSpec spec;
  std::string chat_template;
  if (gguf != nullptr) {
    const model::Json settings = model::gguf_settings(*gguf);
    config = model::read_gguf_llama_config(settings, path);
    const model::JsonFields fields(settings, path);
    spec = model::read_gguf_bpe(fields);
    chat_template = fields.string("tokenizer.chat_template", "");
  } else {
    STOF_CHECK(is_folder(path), kInvalidArgument,
               "{}: expected a folder with config.json, or a .gguf file", path);
    config = model::load_llama_config(path);
    spec = model::load_bpe(path);
    chat_template = read_chat_template(path);
  }
  model::Bpe tokenizer(std::move(spec), path + (gguf != nullptr ? "" : "/tokenizer.json"));
  STOF_CHECK(tokenizer.num_ids() <= config.vocab_size, kCorrupt,
             "{}: expected token ids below the model's vocabulary size, {}, got {}", path,
             config.vocab_size, tokenizer.num_ids() - 1);
  for (const std::int32_t id : config.end_tokens)
    STOF_CHECK(id < config.vocab_size, kCorrupt,
               "{}: eos_token_id: expected an id below {}, got {}", path, config.vocab_size, id);
  return TextGenerator(std::make_shared<const Impl>(
      Impl{path, std::move(chat_template), std::move(tokenizer),
           model::LlamaDecoder(std::move(checkpoint), std::move(config))}));
}

std::int64_t TextGenerator::num_layers() const { return impl_->config().num_layers; }
std::int64_t TextGenerator::num_heads() const { return impl_->config().num_heads; }
std::int64_t TextGenerator::vocab_size() const { return impl_->config().vocab_size; }
std::int64_t TextGenerator::max_positions() const { return impl_->config().max_positions; }

std::string TextGenerator::describe() const {
  const model::LlamaConfig& config = impl_->config();
  const std::int64_t window = *std::max_element(config.windows.begin(), config.windows.end());
  return fmt::format(
      "{}: {} layers, hidden {}, {} heads of {} ({} of keys and values), inner {} with silu gates, "
      "vocabulary {}{}, {} positions{}",
      config.family, config.num_layers, config.hidden_size, config.num_heads, config.head_dim,
      config.num_kv_heads, config.intermediate_size, config.vocab_size,
      config.tied_head ? " (tied)" : "", config.max_positions,
      window > 0 ? fmt::format(", window {}", window) : "");
}

std::vector<std::int32_t> TextGenerator::tokenize(const std::string& text) const {
  return impl_->tokenizer.encode(text);
}

std::string TextGenerator::chat_prompt(const std::vector<ChatMessage>& messages) const {
  return model::render_chat(impl_->chat_template, messages, impl_->path);
}

std::string TextGenerator::detokenize(const std::vector<std::int32_t>& ids) const {
  return impl_->tokenizer.decode(ids);
}

Tensor TextGenerator::logits(const std::vector<std::int32_t>& ids,
                             const GenerateOptions& options) const {
  impl_->check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  model::KvCache cache = impl_->decoder.make_cache();
  model::DecoderTiming timing;
  Tensor all(DType::kFloat32, {static_cast<std::int64_t>(ids.size()), vocab_size()});
  float* out = all.as<float>().data();
  impl_->read(ids, options, cache, model::LlamaDecoder::Rows::kAll, timing,
              [&](std::size_t at, const Tensor& part) {
                std::copy(part.as<float>().begin(), part.as<float>().end(),
                          out + static_cast<std::int64_t>(at) * vocab_size());
              });
  return all;
}

GeneratedText TextGenerator::generate(const std::string& prompt,
                                      const GenerateOptions& options) const {
  impl_->check_options(options);
  model::Sampler sampler({options.temperature, options.top_k, options.top_p, options.seed});
  model::StopStrings stop(options.stop);
  const cpu::ThreadScope threads(options.num_threads);
  GeneratedText result;
  const auto emit = [&](const std::string& text) {
    result.text += text;
    if (options.on_text && !text.empty()) options.on_text(text);
  };

  const auto prefill_start = Clock::now();
  const std::vector<std::int32_t> ids = tokenize(prompt);
  result.prompt_tokens = static_cast<std::int64_t>(ids.size());
  STOF_CHECK(!ids.empty(), kInvalidArgument, "prompt: expected at least one token, got none");
  STOF_CHECK(result.prompt_tokens <= max_positions(), kInvalidArgument,
             "prompt: expected at most {} tokens, the positions this model knows, got {}",
             max_positions(), result.prompt_tokens);
  model::KvCache cache = impl_->decoder.make_cache();
  model::DecoderTiming timing;
  constexpr auto kLast = model::LlamaDecoder::Rows::kLast;
  Tensor logits;
  impl_->read(ids, options, cache, kLast, timing,
              [&](std::size_t, Tensor part) { logits = std::move(part); });
  result.prefill = seconds_since(prefill_start);

  const auto decode_start = Clock::now();
  model::Utf8Stream stream;
  for (;;) {
    const std::int32_t id = sampler.next(logits.as<float>());
    result.ids.push_back(id);
    if (impl_->ends(id)) {
      result.reason = StopReason::kEndToken;
      break;
    }
    // A model may have more logits than its tokenizer has tokens.
    if (id < impl_->tokenizer.num_ids() && !impl_->tokenizer.is_special(id))
      emit(stop.push(stream.push(impl_->tokenizer.bytes(id))));
    if (stop.stopped()) {
      result.reason = StopReason::kStopString;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) == options.max_tokens) break;
    if (cache.length() == max_positions()) {
      result.reason = StopReason::kPositions;
      break;
    }
    logits = impl_->decoder.forward({&id, 1}, cache, options.mask, kLast, timing);
  }
  emit(stop.push(stream.finish()));
  emit(stop.finish());
  result.decode = seconds_since(decode_start);
  result.plan = timing.plan;
  result.attention = timing.attention;
  return result;
}

}  // namespace stof
