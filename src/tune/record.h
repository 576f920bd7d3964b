#pragma once
// What tuning found, as it is kept: readable JSON with a checksum of its own, decisions by content.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/choice.h"
#include "stof/mask.h"
#include "tune/environment.h"

namespace stof::tune {

/// Of a mask and the lengths of the sequences under it: 16 hexadecimal digits of their contents.
std::string batch_key(const mask::Mask& mask, const std::vector<std::int64_t>& offsets);

enum class RecordKind {
  kSegment,  ///< how fast each candidate of a segment is
  kScheme,   ///< how a model's layers are cut, and what each segment is run with
};

/// One candidate's time, or what is wrong with its numbers.
struct MeasuredChoice {
  double microseconds = 0;
  std::string failure;

  bool operator==(const MeasuredChoice&) const = default;
};

struct Record {
  RecordKind kind = RecordKind::kSegment;
  std::string key;   ///< 32 hexadecimal digits: of the segment, or of the model
  std::string what;  ///< for people: "gemm: bias, gelu_erf"
  Environment environment;
  double microseconds = 0;          ///< of the choice, or of a whole pass
  double untuned_microseconds = 0;  ///< of what would be run without tuning; 0: not measured

  // Of a segment.
  fusion::Choice choice;
  std::map<fusion::Choice, MeasuredChoice> measured;

  // Of a scheme.
  std::int64_t rows = 0;                          ///< tokens of the batch that was tuned for
  std::string mask;                               ///< that it was timed under, for people
  std::string batch;                              ///< batch_key() of mask and lengths
  std::string scheme;                             ///< fusion::Scheme::hex()
  std::map<std::string, fusion::Choice> choices;  ///< by positions of a strip: "3-5"
  std::string untuned_scheme;                     ///< what would be run without tuning
  double seconds = 0;                             ///< that the search took
  /// Seconds since its begin and the best pass so far in microseconds, whenever it changed.
  std::vector<std::pair<double, double>> curve;

  bool operator==(const Record& other) const;

  /// "<key>-<environment>.json", of schemes "<key>-<rows>-<batch>-<environment>.json".
  std::string file_name() const;
  /// {"checksum": ..., "record": ...}; several lines, or one.
  std::string to_json(bool pretty) const;
  /// Inverse of to_json(). Throws Corrupt, naming what is wrong, where a byte that matters was
  /// changed; Unsupported for an intact record of another format.
  static Record from_json(std::string_view text, const std::string& name);
};

/// Both of one key and environment: of the choices the newer unless the older is faster by more
/// than the hysteresis, and all that was measured.
Record merge(const Record& older, const Record& newer);

/// Many records in one text, one a line.
std::string make_archive(const std::vector<Record>& records);

struct ParsedArchive {
  std::vector<Record> records;
  std::vector<std::string> problems;  ///< one line a record that was left out
};

/// A damaged record is left out, the others count. Throws Corrupt where the text is no archive.
ParsedArchive parse_archive(std::string_view text, const std::string& name);

}  // namespace stof::tune
