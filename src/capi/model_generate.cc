// Generators of stof/models.h.

#include "capi/guard.h"
#include "capi/model.h"
#include "capi/sized.h"
#include "core/cancel.h"

namespace stof::capi {

GenerateOptions generate_options_of(const stof_generate_options* options) {
  const stof_generate_options given = read_sized_or_default(options, "options");
  GenerateOptions result;
  result.num_threads = given.num_threads;
  result.mask = masks_of(given.mask, given.mask_set);
  result.max_tokens = value_or(given.max_tokens, result.max_tokens);
  result.temperature = given.temperature;
  result.top_k = given.top_k;
  result.top_p = value_or(given.top_p, result.top_p);
  result.seed = given.seed;
  result.stop = texts_of(given.num_stop, given.stop, nullptr, "stop");
  result.prefill_chunk = value_or(given.prefill_chunk, result.prefill_chunk);
  if (given.on_text != nullptr)
    result.on_text = [function = given.on_text, context = given.context](std::string_view piece) {
      if (function(context, piece.data(), static_cast<std::int64_t>(piece.size())) != 0)
        throw Cancelled();
    };
  return result;
}

GenerateOptions seq2seq_options_of(const stof_generate_options* options) {
  const std::int64_t chunk = read_sized_or_default(options, "options").prefill_chunk;
  STOF_CHECK(chunk == 0, kInvalidArgument,
             "options.prefill_chunk: expected 0 of a seq2seq generator, which reads a text at "
             "once, got {}",
             chunk);
  return generate_options_of(options);
}

namespace {

GenerateOptions options_for(const TextGenerator&, const stof_generate_options* options) {
  return generate_options_of(options);
}
GenerateOptions options_for(const Seq2SeqGenerator&, const stof_generate_options* options) {
  return seq2seq_options_of(options);
}

template <class Generator>
std::vector<GeneratedText> generate(const Generator& model, const std::vector<std::string>& prompts,
                                    const GenerateOptions& options) {
  if (prompts.size() != 1) return model.generate_all(prompts, options);
  std::vector<GeneratedText> one;
  one.push_back(model.generate(prompts[0], options));
  return one;
}

/// Of a generator of either kind.
template <class Visit>
auto visit_generator(const stof_model* model, Visit visit) {
  const auto* const seq2seq = std::get_if<Seq2SeqGenerator>(&required(model, "model").model);
  return seq2seq != nullptr ? visit(*seq2seq) : visit(generator_of(model));
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_model_generate(const stof_model* model, int64_t num_prompts,
                                const char* const* prompts, const int64_t* num_bytes,
                                const stof_generate_options* options, char** json) {
  return make_text(json, "json", [&] {
    auto all = nlohmann::ordered_json::array();
    for (const stof::GeneratedText& text : visit_generator(model, [&](const auto& generator) {
           return generate(generator, texts_of(num_prompts, prompts, num_bytes, "prompts"),
                           options_for(generator, options));
         }))
      all.push_back({{"text", text.text},
                     {"ids", text.ids},
                     {"stopped_by", stof::to_string(text.reason)},
                     {"prompt_tokens", text.prompt_tokens},
                     {"prefill_seconds", text.prefill},
                     {"decode_seconds", text.decode}});
    return dump(all);
  });
}

stof_status stof_model_logits(const stof_model* model, int64_t num_ids, const int32_t* ids,
                              const stof_generate_options* options, const stof_tensor* logits) {
  return guard([&] {
    const stof::TextGenerator& generator = generator_of(model);
    const std::vector<std::int32_t> given = ids_of(num_ids, ids);
    const auto output = float32_output_of(logits, "logits", {num_ids, generator.vocab_size()});
    write_to(output, generator.logits(given, generate_options_of(options)));
  });
}

stof_status stof_model_detokenize(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                  char** text, int64_t* num_bytes) {
  return guard([&] {
    char*& out = required(text, "text");
    const std::string all = visit_generator(
        model, [&](const auto& generator) { return generator.detokenize(ids_of(num_ids, ids)); });
    out = copy_text(all);
    if (num_bytes != nullptr) *num_bytes = static_cast<std::int64_t>(all.size());
  });
}

stof_status stof_model_chat_prompt(const stof_model* model, int64_t num_messages,
                                   const stof_chat_message* messages, char** prompt) {
  return make_text(prompt, "prompt", [&] {
    const stof::TextGenerator& generator = generator_of(model);
    STOF_CHECK(num_messages >= 1, kInvalidArgument, "num_messages: expected at least 1, got {}",
               num_messages);
    const SizedArray<stof_chat_message> elements(messages, "messages");
    std::vector<stof::ChatMessage> given;
    for (std::int64_t i = 0; i < num_messages; ++i) {
      const stof_chat_message message = elements.read(i);
      const std::string name = fmt::format("messages[{}]", i);
      STOF_CHECK(message.reserved == 0, kInvalidArgument, "{}.reserved: expected 0, got {}", name,
                 message.reserved);
      given.push_back({text_of(message.role, -1, name + ".role"),
                       text_of(message.content, -1, name + ".content")});
    }
    return generator.chat_prompt(given);
  });
}

}  // extern "C"
