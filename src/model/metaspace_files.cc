// tokenizer.json -> MetaspaceSpec. What is not understood is refused by name: a setting passed over
// would give other ids.

#include <algorithm>

#include "core/check.h"
#include "model/bpe.h"
#include "model/metaspace.h"

namespace stof::model {
namespace {

using Kind = NormalizerStep::Kind;

void read_pieces(const JsonFields& fields, MetaspaceSpec& spec) {
  if (fields.has("unk_id")) spec.unknown = fields.integer("unk_id", 0, kMaxTokenId);
  const Json& vocab = fields.array("vocab");
  spec.pieces.reserve(vocab.size());
  for (const Json& entry : vocab) {
    STOF_CHECK(
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number(),
        kCorrupt, "{}: vocab: expected a list of pieces with their scores, got {}", fields.where(),
        brief(entry));
    spec.pieces.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
  }
  if (spec.pieces.empty()) fields.fail("vocab", "at least one piece");
}

void read_metaspace_model(const JsonFields& fields, MetaspaceSpec& spec) {
  const std::string type = fields.string("type");
  spec.byte_fallback = fields.boolean("byte_fallback", false);
  if (type == "Unigram") {
    read_pieces(fields, spec);
    return;
  }
  if (type != "BPE") fields.refuse("type", "\"Unigram\" or \"BPE\"");
  read_bpe_model(fields, spec.vocab, spec.merges);
  spec.unk_token = fields.string("unk_token", "");
  spec.fuse_unk = fields.boolean("fuse_unk", false);
  spec.ignore_merges = fields.boolean("ignore_merges", false);
}

void read_replace(const JsonFields& fields, NormalizerStep& step) {
  const JsonFields pattern = fields.object("pattern");
  step.to = fields.string("content");
  if (pattern.has("String")) {
    step.from = pattern.string("String");
    if (step.from.empty()) pattern.fail("String", "at least one character");
  } else if (pattern.string("Regex") == " {2,}") {
    step.kind = Kind::kReplaceRun;
  } else {
    pattern.refuse("Regex", "\" {2,}\"");
  }
}

void read_normalizer_step(const JsonFields& fields, std::vector<NormalizerStep>& steps) {
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : fields.array("normalizers"))
      read_normalizer_step(JsonFields(step, fields.where() + ": normalizers"), steps);
    return;
  }
  NormalizerStep step;
  if (type == "Precompiled") {
    step.kind = Kind::kCharsmap;
    const std::string where = fields.where() + ": precompiled_charsmap";
    step.charsmap = std::make_shared<const Charsmap>(
        decode_base64(fields.string("precompiled_charsmap"), where), fields.where());
  } else if (type == "Replace") {
    read_replace(fields, step);
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.to = fields.string("prepend");
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = fields.boolean("strip_left", true);
    step.right = fields.boolean("strip_right", true);
  } else {
    fields.refuse("type", "\"Precompiled\", \"Replace\", \"Prepend\", \"Strip\" or \"Sequence\"");
  }
  steps.push_back(std::move(step));
}

void require_mark(const JsonFields& fields) {
  if (fields.string("replacement") != kBlankMark)
    fields.refuse("replacement", fmt::format("\"{}\"", kBlankMark));
}

/// "prepend_scheme", or in early files "add_prefix_space".
Metaspace::Prepend read_prepend(const JsonFields& fields) {
  const bool add = fields.boolean("add_prefix_space", true);
  const std::string scheme = fields.string("prepend_scheme", add ? "always" : "never");
  if (scheme == "always") return Metaspace::Prepend::kAlways;
  if (scheme == "first") return Metaspace::Prepend::kFirst;
  if (scheme != "never") fields.refuse("prepend_scheme", "\"always\", \"first\" or \"never\"");
  return Metaspace::Prepend::kNever;
}

void read_pre_tokenizer_step(const JsonFields& fields, MetaspaceSpec& spec) {
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : fields.array("pretokenizers"))
      read_pre_tokenizer_step(JsonFields(step, fields.where() + ": pretokenizers"), spec);
  } else if (type == "WhitespaceSplit" && !spec.metaspace) {
    spec.whitespace_split = true;
  } else if (type == "Metaspace" && !spec.metaspace) {
    require_mark(fields);
    spec.metaspace = Metaspace{read_prepend(fields), fields.boolean("split", true)};
    if (spec.whitespace_split && spec.metaspace->prepend == Metaspace::Prepend::kFirst)
      fields.refuse("prepend_scheme", "\"always\" or \"never\" behind WhitespaceSplit");
  } else if (type == "Split") {
    // Gemma's, which finds no blank: its normaliser has made marks of them.
    const bool no_blanks = std::ranges::any_of(spec.normalizer, [](const NormalizerStep& step) {
      return step.kind == Kind::kReplace && step.from == " " && step.to == kBlankMark;
    });
    if (fields.object("pattern").string("String", "") != " " || !no_blanks)
      fields.refuse("pattern", "a blank, behind a normalizer that replaces blanks");
  } else {
    fields.refuse("type", "\"Metaspace\", or \"WhitespaceSplit\" before it");
  }
}

void read_metaspace_post_processor(const JsonFields& fields, MetaspaceSpec& spec) {
  const std::string type = fields.string("type");
  if (type == "TemplateProcessing") {
    spec.frame = read_template(fields);
  } else if (type == "Sequence") {
    for (const Json& step : fields.array("processors"))
      read_metaspace_post_processor(JsonFields(step, fields.where() + ": processors"), spec);
  } else {
    fields.refuse("type", "\"TemplateProcessing\"");
  }
}

void read_decoder_step(const JsonFields& fields, MetaspaceSpec& spec) {
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const Json& step : fields.array("decoders"))
      read_decoder_step(JsonFields(step, fields.where() + ": decoders"), spec);
  } else if (type == "Metaspace") {
    require_mark(fields);
    spec.decode_drops_marks = read_prepend(fields) != Metaspace::Prepend::kNever;
  } else if (type == "Replace") {
    const std::string from = fields.object("pattern").string("String", "");
    if (from != kBlankMark || fields.string("content") != " ")
      fields.refuse("pattern", fmt::format("\"{}\", which becomes a blank", kBlankMark));
  } else if (type == "ByteFallback") {
    spec.decode_bytes = true;
  } else if (type == "Strip") {
    if (fields.string("content") != " ") fields.refuse("content", "a blank");
    spec.decode_drops_blanks = static_cast<std::size_t>(fields.integer("start", 0, 16, 0));
    if (fields.integer("stop", 0, kMaxTokenId, 0) != 0) fields.refuse("stop", "0");
  } else if (type != "Fuse") {
    fields.refuse("type",
                  "\"Metaspace\", \"Replace\", \"ByteFallback\", \"Fuse\", \"Strip\" or "
                  "\"Sequence\"");
  }
}

}  // namespace

Vocabulary MetaspaceSpec::ids() const {
  Vocabulary ids = vocab;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    ids.insert_or_assign(pieces[i].first, static_cast<std::int32_t>(i));
  return ids;
}

MetaspaceSpec read_metaspace_json(const Json& json, const std::string& file) {
  const JsonFields root(json, file);
  refuse_unknown_fields(root, json);
  MetaspaceSpec spec;
  read_metaspace_model(root.object("model"), spec);
  if (root.has("normalizer")) read_normalizer_step(root.object("normalizer"), spec.normalizer);
  if (root.has("pre_tokenizer")) read_pre_tokenizer_step(root.object("pre_tokenizer"), spec);
  spec.added = read_added_tokens(root, spec.ids());
  if (root.has("post_processor"))
    read_metaspace_post_processor(root.object("post_processor"), spec);
  read_decoder_step(root.object("decoder"), spec);
  return spec;
}

}  // namespace stof::model
