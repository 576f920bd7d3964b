// A pruner's settings: limits, text and what is derived from them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/caret.h"
#include "core/check.h"
#include "core/text.h"
#include "mask/lexer.h"
#include "stof/prune.h"

namespace stof::mask {
namespace {

/// An argument of a pruner's text: where it is read to, and what it says there.
struct Setting {
  const char* name;
  std::int64_t PruneSettings::*whole = nullptr;
  double PruneSettings::*number = nullptr;
  bool is_word = false;
};

constexpr Setting kKeep{"keep", nullptr, &PruneSettings::keep};
constexpr Setting kBlock{"block", &PruneSettings::block};
constexpr Setting kPool{"pool", nullptr, nullptr, true};
constexpr Setting kSinks{"sinks", &PruneSettings::sink_blocks};
constexpr Setting kLocal{"local", &PruneSettings::local_blocks};
constexpr Setting kBalance{"balance", nullptr, &PruneSettings::balance};
constexpr Setting kProbes{"probes", &PruneSettings::probes};
constexpr Setting kRows{"rows", nullptr, nullptr, true};
/// N is kept in `keep`, which depends on M: it waits until both are read.
constexpr Setting kN{"n"};
constexpr Setting kM{"m", &PruneSettings::group};

struct Method {
  PruneMethod method;
  std::vector<Setting> settings;
  std::size_t num_needed;
};

const std::array<Method, 4>& methods() {
  static const std::array<Method, 4> all = {
      {{PruneMethod::kNm, {kN, kM}, 2},
       {PruneMethod::kBlockTopK, {kKeep, kBlock, kPool, kSinks, kLocal}, 1},
       {PruneMethod::kMass, {kKeep, kBlock, kPool, kSinks, kLocal, kBalance}, 1},
       {PruneMethod::kVerticalSlash, {kKeep, kBlock, kSinks, kLocal, kProbes, kRows}, 1}}};
  return all;
}

const Method& method_of(PruneMethod wanted) { return methods()[static_cast<std::size_t>(wanted)]; }

const char* word_of(const PruneSettings& settings, const Setting& setting) {
  if (setting.name == std::string_view("pool"))
    return settings.pooling == PrunePooling::kMean ? "mean" : "max";
  return settings.probe_rows == PruneProbes::kSpread ? "spread" : "last";
}

class PrunerParser {
 public:
  explicit PrunerParser(std::string_view text) : lexer_(text), token_(lexer_.next()) {}

  Pruner parse_all() {
    Pruner pruner;
    if (token_.text == "per_head") {
      take();
      pruner.heads.clear();
      expect('(');
      do {
        pruner.heads.push_back(parse_settings());
      } while (take_sign(','));
      expect(')');
    } else {
      pruner.heads = {parse_settings()};
    }
    if (token_.kind != TokenKind::kEnd)
      fail(token_.offset, fmt::format("expected the end of the text, got {}", token_.describe()));
    return pruner;
  }

 private:
  [[noreturn]] void fail(std::size_t offset, std::string_view message) {
    throw Error(ErrorCode::kInvalidArgument,
                message_with_caret("pruner", message, lexer_.text(), offset));
  }

  Token take() {
    Token taken = token_;
    token_ = lexer_.next();
    return taken;
  }
  bool take_sign(char sign) {
    if (!token_.is_sign(sign)) return false;
    take();
    return true;
  }
  void expect(char sign) {
    if (!take_sign(sign))
      fail(token_.offset, fmt::format("expected \"{}\", got {}", sign, token_.describe()));
  }

  PruneSettings parse_settings() {
    const Token name = take();
    const Method* method = nullptr;
    for (const Method& known : methods())
      if (name.kind == TokenKind::kName && name.text == to_string(known.method)) method = &known;
    if (method == nullptr)
      fail(name.offset, fmt::format("expected nm, block_topk, mass, vertical_slash or per_head, "
                                    "got {}",
                                    name.describe()));
    PruneSettings settings;
    settings.method = method->method;
    n_.reset();
    expect('(');
    std::size_t next = 0;
    std::vector<bool> given(method->settings.size());
    do {
      const Token first = token_;
      std::size_t index = next++;
      if (token_.kind == TokenKind::kName && next_is_equals()) {
        index = find(*method, take());
        take();
        next = method->settings.size();  // by name from here on
      }
      if (index >= method->settings.size())
        fail(first.offset, fmt::format("{}: expected {} or none here, got {}",
                                       to_string(method->method), "name=value", first.describe()));
      if (given[index])
        fail(first.offset, fmt::format("{}: {} is given twice", to_string(method->method),
                                       method->settings[index].name));
      given[index] = true;
      parse_value(method->settings[index], settings);
    } while (take_sign(','));
    expect(')');
    for (std::size_t i = 0; i < method->num_needed; ++i)
      if (!given[i])
        fail(name.offset,
             fmt::format("{}: expected {}", to_string(method->method), method->settings[i].name));
    try {
      if (n_) {
        STOF_CHECK(settings.group >= 2 && *n_ >= 1 && *n_ <= settings.group, kInvalidArgument,
                   "nm: expected n of 1 to m and m of at least 2, got n {} and m {}", *n_,
                   settings.group);
        settings.keep = static_cast<double>(*n_) / static_cast<double>(settings.group);
      }
      settings.validate();
    } catch (const Error& error) {
      fail(name.offset, error.what());
    }
    return settings;
  }

  bool next_is_equals() {
    Lexer ahead = lexer_;
    return ahead.next().is_sign('=');
  }

  std::size_t find(const Method& method, const Token& name) {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < method.settings.size(); ++i) {
      if (name.text == method.settings[i].name) return i;
      names.emplace_back(method.settings[i].name);
    }
    fail(name.offset,
         fmt::format("{} has no {}; expected {}{}", to_string(method.method), quote_text(name.text),
                     fmt::join(names, ", "), near_name_hint(name.text, names)));
  }

  void parse_value(const Setting& setting, PruneSettings& settings) {
    const Token value = take();
    if (setting.is_word) {
      const bool is_pool = setting.name == std::string_view("pool");
      const char* first = is_pool ? "mean" : "spread";
      const char* second = is_pool ? "max" : "last";
      if (value.text != first && value.text != second)
        fail(value.offset, fmt::format("{}: expected {} or {}, got {}", setting.name, first, second,
                                       value.describe()));
      if (is_pool)
        settings.pooling = value.text == first ? PrunePooling::kMean : PrunePooling::kMax;
      else
        settings.probe_rows = value.text == first ? PruneProbes::kSpread : PruneProbes::kLast;
      return;
    }
    const auto* whole = std::get_if<std::int64_t>(&value.number);
    const auto* number = std::get_if<double>(&value.number);
    const bool is_number = value.kind == TokenKind::kNumber;
    if (setting.number != nullptr) {
      if (!is_number || (whole == nullptr && number == nullptr))
        fail(value.offset,
             fmt::format("{}: expected a number, got {}", setting.name, value.describe()));
      settings.*setting.number = whole != nullptr ? static_cast<double>(*whole) : *number;
      return;
    }
    if (!is_number || whole == nullptr)
      fail(value.offset,
           fmt::format("{}: expected a whole number, got {}", setting.name, value.describe()));
    if (setting.whole != nullptr)
      settings.*setting.whole = *whole;
    else
      n_ = *whole;
  }

  Lexer lexer_;
  Token token_;
  std::optional<std::int64_t> n_;
};

void check_range(const PruneSettings& settings, const char* name, std::int64_t value,
                 std::int64_t low, std::int64_t high) {
  STOF_CHECK(value >= low && value <= high, kInvalidArgument, "{}: {}: expected {} to {}, got {}",
             to_string(settings.method), name, low, high, value);
}

}  // namespace

const char* to_string(PruneMethod method) {
  switch (method) {
    case PruneMethod::kNm:
      return "nm";
    case PruneMethod::kBlockTopK:
      return "block_topk";
    case PruneMethod::kMass:
      return "mass";
    case PruneMethod::kVerticalSlash:
      break;
  }
  return "vertical_slash";
}

const char* to_string(PruneUnit unit) {
  switch (unit) {
    case PruneUnit::kKeys:
      return "keys per query";
    case PruneUnit::kKeyBlocks:
      return "key blocks per query block";
    case PruneUnit::kKeysOfBlock:
      break;
  }
  return "keys per query block";
}

std::int64_t PruneSettings::kept_of_group() const {
  // n / m * m may come out a rounding above n.
  constexpr double kRounding = 1e-9;
  const double n = std::ceil(keep * static_cast<double>(group) - kRounding);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(n), 1, group);
}

void PruneSettings::validate() const {
  STOF_CHECK(keep >= 0 && keep <= 1, kInvalidArgument, "{}: keep: expected 0 to 1, got {}",
             to_string(method), keep);
  constexpr std::int64_t kMostGroup = 64, kMostBlock = 4096, kMostBlocks = 1 << 20;
  if (method == PruneMethod::kNm) {
    check_range(*this, "m", group, 2, kMostGroup);
    return;
  }
  check_range(*this, "block", block, 1, kMostBlock);
  check_range(*this, "sinks", sink_blocks, 0, kMostBlocks);
  check_range(*this, "local", local_blocks, 0, kMostBlocks);
  if (method == PruneMethod::kVerticalSlash) check_range(*this, "probes", probes, 1, kMostBlocks);
  STOF_CHECK(method != PruneMethod::kMass || (balance >= 1 && balance <= 1e6), kInvalidArgument,
             "mass: balance: expected 1 to 1e6, got {}", balance);
}

std::string PruneSettings::to_text() const {
  if (method == PruneMethod::kNm) return fmt::format("nm({}, {})", kept_of_group(), group);
  const PruneSettings defaults;
  std::string text = fmt::format("{}({}", to_string(method), keep);
  for (const Setting& setting : method_of(method).settings) {
    if (setting.name == std::string_view("keep")) continue;
    if (setting.whole != nullptr && this->*setting.whole != defaults.*setting.whole)
      text += fmt::format(", {}={}", setting.name, this->*setting.whole);
    if (setting.number != nullptr && this->*setting.number != defaults.*setting.number)
      text += fmt::format(", {}={}", setting.name, this->*setting.number);
    if (setting.is_word && word_of(*this, setting) != std::string_view(word_of(defaults, setting)))
      text += fmt::format(", {}={}", setting.name, word_of(*this, setting));
  }
  return text + ")";
}

Pruner Pruner::parse(std::string_view text) { return PrunerParser(text).parse_all(); }

std::string Pruner::to_text() const {
  if (heads.size() == 1) return heads.front().to_text();
  std::vector<std::string> texts;
  texts.reserve(heads.size());
  for (const PruneSettings& head : heads) texts.push_back(head.to_text());
  return fmt::format("per_head({})", fmt::join(texts, ", "));
}

Pruner Pruner::with_keep(double keep) const {
  Pruner other = *this;
  for (PruneSettings& head : other.heads) head.keep = keep;
  return other;
}

void Pruner::validate(std::int64_t num_heads) const {
  STOF_CHECK(std::ssize(heads) == 1 || std::ssize(heads) == num_heads, kInvalidArgument,
             "pruner: expected settings of all heads or of each of {} query heads, got {}",
             num_heads, heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    try {
      heads[h].validate();
    } catch (const Error& error) {
      throw Error(error.code(),
                  heads.size() == 1 ? error.what() : fmt::format("head {}: {}", h, error.what()));
    }
  }
}

}  // namespace stof::mask
