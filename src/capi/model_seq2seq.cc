// Seq2seq generators of stof/models.h: their tasks, and what encoder and decoder make of tokens.

#include "capi/guard.h"
#include "capi/model.h"

using namespace stof::capi;

extern "C" {

stof_status stof_model_task(const stof_model* model, const char* source, const char* target,
                            char** json) {
  return make_text(json, "json", [&] {
    const stof::Seq2SeqGenerator& generator = seq2seq_of(model);
    STOF_CHECK((source == nullptr) == (target == nullptr), kInvalidArgument,
               "{}: expected a language beside the other, or null for both, got null",
               source == nullptr ? "source" : "target");
    return dump(
        to_json(source == nullptr ? generator.summary() : generator.translation(source, target)));
  });
}

stof_status stof_model_encode_ids(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                  const stof_generate_options* options, const stof_tensor* states) {
  return guard([&] {
    const stof::Seq2SeqGenerator& generator = seq2seq_of(model);
    const std::vector<std::int32_t> given = ids_of(num_ids, ids);
    const auto output = float32_output_of(states, "states", {num_ids, generator.hidden_size()});
    write_to(output, generator.encode(given, seq2seq_options_of(options)));
  });
}

stof_status stof_model_seq2seq_logits(const stof_model* model, int64_t num_ids, const int32_t* ids,
                                      int64_t num_written, const int32_t* written,
                                      const stof_generate_options* options,
                                      const stof_tensor* logits) {
  return guard([&] {
    const stof::Seq2SeqGenerator& generator = seq2seq_of(model);
    STOF_CHECK(num_written >= 0, kInvalidArgument, "num_written: expected 0 or more, got {}",
               num_written);
    const std::vector<std::int32_t> given = ids_of(num_ids, ids);
    const std::vector<std::int32_t> after = ids_of(num_written, written);
    const auto output =
        float32_output_of(logits, "logits", {num_written + 1, generator.vocab_size()});
    write_to(output, generator.logits(given, after, seq2seq_options_of(options)));
  });
}

}  // extern "C"
