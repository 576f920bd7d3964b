#include "tune/record.h"

#include <cmath>

#include "core/check.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/text.h"
#include "tune/memo.h"

namespace stof::tune {
namespace {

// Keys are in order: one text for one record, which the checksum needs.
using Json = nlohmann::json;

constexpr int kFormat = 2;
constexpr std::string_view kArchiveTitle = R"({"archive":"stof tuning records, one a line"})";
/// How to_json(false) starts. Quotes inside strings are escaped, so it is nowhere else.
constexpr std::string_view kRecordStart = "{\"checksum\":\"";

const char* to_string(RecordKind kind) {
  return kind == RecordKind::kSegment ? "segment" : "scheme";
}

Json choice_json(const fusion::Choice& choice) {
  return {{"family", choice.family}, {"parameters", choice.parameters}};
}

Json body_json(const Record& record) {
  Json environment = Json::object();
  for (const EnvironmentField& field : record.environment.fields)
    environment[field.name] = {{"value", field.value}, {"hard", field.hard}};
  Json body = {{"format", kFormat},
               {"kind", to_string(record.kind)},
               {"key", record.key},
               {"what", record.what},
               {"environment", environment},
               {"microseconds", record.microseconds},
               {"untuned_microseconds", record.untuned_microseconds}};
  if (record.kind == RecordKind::kSegment) {
    body["choice"] = choice_json(record.choice);
    for (const auto& [choice, measured] : record.measured) {
      Json& entry = body["measured"].emplace_back(Json{{"choice", choice.text()}});
      if (measured.failure.empty())
        entry["microseconds"] = measured.microseconds;
      else
        entry["failure"] = measured.failure;
    }
  } else {
    body["rows"] = record.rows;
    body["mask"] = record.mask;
    body["batch"] = record.batch;
    body["scheme"] = record.scheme;
    body["choices"] = Json::object();
    for (const auto& [key, choice] : record.choices) body["choices"][key] = choice_json(choice);
    body["untuned_scheme"] = record.untuned_scheme;
    body["seconds"] = record.seconds;
    body["curve"] = record.curve;
  }
  return body;
}

std::string checksum_of(const Json& body) { return fingerprint_of(body.dump()).hex(); }

fusion::Choice read_choice(const Json& json) {
  fusion::Choice choice;
  choice.family = json.at("family").get<std::string>();
  choice.parameters = json.at("parameters").get<std::map<std::string, std::int64_t>>();
  return choice;
}

double read_time(const Json& json) {
  const double us = json.get<double>();
  if (!(us >= 0) || !std::isfinite(us)) throw Error(ErrorCode::kCorrupt, "a time below 0");
  return us;
}

bool is_key(const std::string& key, std::size_t digits) {
  return key.size() == digits && key.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Record read_body(const Json& body) {
  Record record;
  const int format = body.at("format").get<int>();
  STOF_CHECK(format == kFormat, kUnsupported, "format: expected {}, got {}, of another stof",
             kFormat, format);
  const std::string kind = body.at("kind").get<std::string>();
  STOF_CHECK(kind == "segment" || kind == "scheme", kCorrupt,
             "kind: expected segment or scheme, got {}", quote_text(kind));
  record.kind = kind == "segment" ? RecordKind::kSegment : RecordKind::kScheme;
  record.key = body.at("key").get<std::string>();
  STOF_CHECK(is_key(record.key, 32), kCorrupt, "key: expected 32 hexadecimal digits, got {}",
             quote_text(record.key));
  record.what = body.at("what").get<std::string>();
  for (const auto& [name, field] : body.at("environment").items())
    record.environment.fields.push_back(
        {name, field.at("value").get<std::string>(), field.at("hard").get<bool>()});
  record.microseconds = read_time(body.at("microseconds"));
  record.untuned_microseconds = read_time(body.at("untuned_microseconds"));
  if (record.kind == RecordKind::kSegment) {
    record.choice = read_choice(body.at("choice"));
    for (const Json& entry : body.value("measured", Json::array())) {
      MeasuredChoice& measured =
          record.measured[fusion::Choice::from_text(entry.at("choice").get<std::string>())];
      if (entry.contains("failure"))
        measured.failure = entry.at("failure").get<std::string>();
      else
        measured.microseconds = read_time(entry.at("microseconds"));
    }
  } else {
    record.rows = body.at("rows").get<std::int64_t>();
    STOF_CHECK(record.rows > 0, kCorrupt, "rows: expected at least 1, got {}", record.rows);
    record.mask = body.at("mask").get<std::string>();
    record.batch = body.at("batch").get<std::string>();
    STOF_CHECK(is_key(record.batch, 16), kCorrupt, "batch: expected 16 hexadecimal digits, got {}",
               quote_text(record.batch));
    record.scheme = body.at("scheme").get<std::string>();
    for (const auto& [key, choice] : body.at("choices").items())
      record.choices[key] = read_choice(choice);
    record.untuned_scheme = body.at("untuned_scheme").get<std::string>();
    record.seconds = read_time(body.at("seconds"));
    record.curve = body.at("curve").get<std::vector<std::pair<double, double>>>();
  }
  return record;
}

}  // namespace

std::string batch_key(const mask::Mask& mask, const std::vector<std::int64_t>& offsets) {
  Hasher hasher;
  hasher.add(mask.fingerprint());
  for (const std::int64_t offset : offsets) hasher.add(offset);
  return hasher.finish().hex().substr(0, 16);
}

bool Record::operator==(const Record& other) const { return body_json(*this) == body_json(other); }

std::string Record::file_name() const {
  const std::string of = kind == RecordKind::kScheme ? fmt::format("-{}-{}", rows, batch) : "";
  return fmt::format("{}{}-{}.json", key, of, environment.fingerprint().hex().substr(0, 16));
}

std::string Record::to_json(bool pretty) const {
  const Json body = body_json(*this);
  const Json whole = {{"checksum", checksum_of(body)}, {"record", body}};
  return whole.dump(pretty ? 2 : -1);
}

Record Record::from_json(std::string_view text, const std::string& name) {
  const Json whole = parse_json(text, name);
  try {
    const Json& body = whole.at("record");
    STOF_CHECK(whole.at("checksum").get<std::string>() == checksum_of(body), kCorrupt,
               "its checksum does not fit its content");
    return read_body(body);
  } catch (const Json::exception&) {
    throw_error(ErrorCode::kCorrupt, "{}: expected a tuning record, a field is missing", name);
  } catch (const Error& error) {
    throw_error(error.code(), "{}: {}", name, error.what());
  }
}

Record merge(const Record& older, const Record& newer) {
  const bool keep = older.microseconds < newer.microseconds * (1 - kHysteresis);
  Record merged = keep ? older : newer;
  for (const Record* record : {&older, &newer})
    for (const auto& [choice, measured] : record->measured) merged.measured[choice] = measured;
  return merged;
}

std::string make_archive(const std::vector<Record>& records) {
  std::string text = std::string(kArchiveTitle) + "\n";
  for (const Record& record : records) text += record.to_json(false) + "\n";
  return text;
}

ParsedArchive parse_archive(std::string_view text, const std::string& name) {
  ParsedArchive archive;
  int number = 0;
  const auto parse = [&](std::string_view piece) {
    const std::string where = fmt::format("{}: record {}", name, ++number);
    try {
      archive.records.push_back(Record::from_json(piece, where));
    } catch (const Error& error) {
      archive.problems.push_back(error.what());
    }
  };
  // A line is a record; a break that was lost costs one of the two it parted.
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', begin), text.size());
    const std::size_t next = text.find(kRecordStart, begin + 1);
    const std::size_t end = std::min(line_end, next);
    const std::string_view piece = text.substr(begin, end - begin);
    const bool blank = piece.find_first_not_of(" \t\r") == std::string_view::npos;
    if (!blank && piece != kArchiveTitle) parse(piece);
    begin = end == line_end ? end + 1 : end;
  }
  STOF_CHECK(!archive.records.empty() || text.starts_with(kArchiveTitle), kCorrupt,
             "{}: expected tuning records as stof cache export writes them", name);
  return archive;
}

}  // namespace stof::tune
