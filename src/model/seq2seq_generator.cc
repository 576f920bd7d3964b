#include "stof/seq2seq_generator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <utility>

#include "backend/cpu/thread_scope.h"
#include "core/cancel.h"
#include "core/check.h"
#include "core/file.h"
#include "core/text.h"
#include "model/seq2seq.h"
#include "model/subword.h"
#include "model/t5_graph.h"
#include "model/text_writer.h"

namespace stof {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_after(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The languages that T5 was trained to translate.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kT5Languages = {
    {{"en", "English"}, {"de", "German"}, {"fr", "French"}, {"ro", "Romanian"}}};

/// "en" of "English" and of "en"; else as given.
std::string code_of(const std::string& language) {
  for (const auto& [code, name] : kT5Languages)
    if (language == name) return std::string(code);
  return language;
}

bool is_code(const std::string& language) {
  return language.size() <= 3 &&
         std::ranges::all_of(language, [](unsigned char c) { return std::islower(c) != 0; });
}

std::string name_of(const char* option, const std::string& language) {
  STOF_CHECK(!language.empty(), kInvalidArgument, "{}: expected a language, got none", option);
  for (const auto& [code, name] : kT5Languages)
    if (language == code) return std::string(name);
  STOF_CHECK(!is_code(language), kInvalidArgument,
             "{}: expected en, de, fr, ro, a code that the model's task_specific_params name, or "
             "the English name of a language, got {}",
             option, quote_text(language));
  return language;
}

void check_options(const GenerateOptions& options) {
  model::check_generate_options(options);
  STOF_CHECK(!options.prune, kUnsupported,
             "prune: expected none for a text-to-text model, got a pruner; give a mask instead");
}

}  // namespace

struct Seq2SeqGenerator::Impl {
  std::unique_ptr<const model::SubwordTokenizer> tokenizer;
  model::Seq2Seq seq2seq;
  std::vector<Seq2SeqTask> tasks;

  Impl(std::unique_ptr<const model::SubwordTokenizer> subword,
       std::unique_ptr<const model::Seq2SeqModel> model, std::vector<Seq2SeqTask> known,
       const LoadOptions& options)
      : tokenizer(std::move(subword)),
        seq2seq(std::move(model), options),
        tasks(std::move(known)) {}

  const model::Seq2SeqFacts& facts() const { return seq2seq.facts(); }

  const Seq2SeqTask* find(const std::string& name) const {
    const auto found = std::ranges::find(tasks, name, &Seq2SeqTask::name);
    return found == tasks.end() ? nullptr : &*found;
  }

  std::vector<std::int32_t> encode(const std::string& text) const {
    std::vector<std::int32_t> ids = tokenizer->encode(text);
    // T5 was trained with it, and not every file of a tokenizer says so.
    const std::vector<std::int32_t>& ends = facts().end_tokens;
    const bool ended = !ids.empty() && std::ranges::find(ends, ids.back()) != ends.end();
    if (!ended && !ends.empty()) ids.push_back(ends[0]);
    return ids;
  }

  std::vector<GeneratedText> generate(const std::vector<std::string>& texts,
                                      const GenerateOptions& options) const;
};

Seq2SeqGenerator Seq2SeqGenerator::load(const std::string& folder, const LoadOptions& options) {
  STOF_CHECK(is_folder(folder), kInvalidArgument, "{}: expected a folder with config.json", folder);
  const model::T5Config config = model::load_t5_config(folder);
  auto tokenizer = model::load_subword(folder);
  auto model = model::make_t5_model(Checkpoint::open(folder), config);
  STOF_CHECK(tokenizer->num_ids() <= config.vocab_size, kCorrupt,
             "{}: expected token ids below the model's vocabulary size, {}, got {}", folder,
             config.vocab_size, tokenizer->num_ids() - 1);
  for (const std::int32_t id : config.end_tokens)
    STOF_CHECK(id < config.vocab_size, kCorrupt,
               "{}: eos_token_id: expected an id below {}, got {}", folder, config.vocab_size, id);
  STOF_CHECK(config.start_token < config.vocab_size, kCorrupt,
             "{}: decoder_start_token_id: expected an id below {}, got {}", folder,
             config.vocab_size, config.start_token);
  std::vector<Seq2SeqTask> tasks;
  for (const model::T5Task& task : config.tasks)
    tasks.push_back({task.name, task.prefix, task.max_tokens});
  return Seq2SeqGenerator(std::make_shared<const Impl>(std::move(tokenizer), std::move(model),
                                                       std::move(tasks), options));
}

std::int64_t Seq2SeqGenerator::encoder_layers() const { return impl_->facts().encoder_layers; }
std::int64_t Seq2SeqGenerator::decoder_layers() const { return impl_->facts().decoder_layers; }
std::int64_t Seq2SeqGenerator::num_heads() const { return impl_->facts().num_heads; }
std::int64_t Seq2SeqGenerator::hidden_size() const { return impl_->facts().hidden_size; }
std::int64_t Seq2SeqGenerator::vocab_size() const { return impl_->facts().vocab_size; }
std::string Seq2SeqGenerator::describe() const { return impl_->facts().description; }
std::string Seq2SeqGenerator::place() const { return impl_->seq2seq.place(); }
std::string Seq2SeqGenerator::place_note() const { return impl_->seq2seq.place_note(); }
std::vector<Seq2SeqTask> Seq2SeqGenerator::tasks() const { return impl_->tasks; }

Seq2SeqTask Seq2SeqGenerator::translation(const std::string& source,
                                          const std::string& target) const {
  const std::string name = fmt::format("translation_{}_to_{}", code_of(source), code_of(target));
  if (const Seq2SeqTask* const task = impl_->find(name)) return *task;
  return {name, fmt::format("translate {} to {}: ", name_of("source", source),
                            name_of("target", target))};
}

Seq2SeqTask Seq2SeqGenerator::summary() const {
  const std::string name = "summarization";
  if (const Seq2SeqTask* const task = impl_->find(name)) return *task;
  return {name, "summarize: "};
}

std::vector<std::int32_t> Seq2SeqGenerator::tokenize(const std::string& text) const {
  return impl_->encode(text);
}

std::string Seq2SeqGenerator::token(std::int32_t id) const { return impl_->tokenizer->token(id); }

std::string Seq2SeqGenerator::detokenize(const std::vector<std::int32_t>& ids) const {
  return impl_->tokenizer->decode(ids);
}

Tensor Seq2SeqGenerator::encode(const std::vector<std::int32_t>& ids,
                                const GenerateOptions& options) const {
  check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  auto lease = impl_->seq2seq.start({static_cast<std::int64_t>(ids.size())}, 1);
  exec::RunTiming timing;
  return lease.encode({ids}, options.mask, timing, /*wanted=*/true);
}

Tensor Seq2SeqGenerator::logits(const std::vector<std::int32_t>& ids,
                                const std::vector<std::int32_t>& written,
                                const GenerateOptions& options) const {
  check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  std::vector<std::int32_t> read = {impl_->facts().start_token};
  read.insert(read.end(), written.begin(), written.end());
  const auto count = static_cast<std::int64_t>(read.size());
  auto lease =
      impl_->seq2seq.start({static_cast<std::int64_t>(ids.size())}, count, /*logit_rows=*/count);
  exec::RunTiming timing;
  lease.encode({ids}, options.mask, timing);
  return lease.forward({{0, read, count}}, timing);
}

std::vector<GeneratedText> Seq2SeqGenerator::Impl::generate(const std::vector<std::string>& texts,
                                                            const GenerateOptions& options) const {
  check_options(options);
  const cpu::ThreadScope threads(options.num_threads);
  const std::size_t count = texts.size();
  const auto read_start = Clock::now();
  std::vector<std::unique_ptr<model::TextWriter>> writers;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(encode(texts[i]));
    lengths.push_back(static_cast<std::int64_t>(ids[i].size()));
    STOF_CHECK(lengths[i] > 0, kInvalidArgument, "text {}: expected at least one token, got none",
               i);
    writers.push_back(
        std::make_unique<model::TextWriter>(*tokenizer, options, /*begins_text=*/true));
    writers[i]->result.prompt_tokens = lengths[i];
  }
  auto lease = seq2seq.start(lengths, options.max_tokens);
  exec::RunTiming timing;
  lease.encode({ids.begin(), ids.end()}, options.mask, timing);
  const double reading = seconds_after(read_start);

  const auto write_start = Clock::now();
  const std::vector<std::int32_t> start = {facts().start_token};
  std::vector<model::DecoderSequences::Part> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back({static_cast<std::int64_t>(i), start});
  while (!parts.empty()) {
    check_cancelled();
    const Tensor logits = lease.forward(parts, timing);
    const auto width = static_cast<std::size_t>(facts().vocab_size);
    std::vector<model::DecoderSequences::Part> next;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      model::TextWriter& writer = *writers[static_cast<std::size_t>(parts[i].sequence)];
      if (writer.next(logits.as<float>().subspan(i * width, width), facts().end_tokens, false))
        next.push_back({parts[i].sequence, std::span(writer.result.ids).last(1)});
    }
    parts = std::move(next);
  }
  std::vector<GeneratedText> results;
  for (const auto& writer : writers) {
    GeneratedText& result = results.emplace_back(std::move(writer->result));
    result.prefill = reading;
    result.decode = seconds_after(write_start);
    result.plan = timing.plan;
    result.attention = timing.attention;
  }
  return results;
}

GeneratedText Seq2SeqGenerator::generate(const std::string& text,
                                         const GenerateOptions& options) const {
  return std::move(impl_->generate({text}, options)[0]);
}

std::vector<GeneratedText> Seq2SeqGenerator::generate_all(const std::vector<std::string>& texts,
                                                          const GenerateOptions& options) const {
  STOF_CHECK(!options.on_text, kInvalidArgument,
             "on_text: expected none with several texts, whose pieces it could not tell apart");
  if (texts.empty()) return {};
  return impl_->generate(texts, options);
}

}  // namespace stof
