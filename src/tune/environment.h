#pragma once
// What a measurement depends on besides the segment: the machine, its libraries and how it was
// measured.

#include <optional>
#include <string>
#include <vector>

#include "stof/fingerprint.h"

namespace stof::tune {

/// Raise when a kernel template changes what its parameters mean or how fast it is: what was
/// measured before is then ignored.
inline constexpr int kTemplateVersion = 1;
/// Raise when tune measures differently.
inline constexpr int kPolicyVersion = 1;

struct EnvironmentField {
  std::string name;   ///< "gpu", "driver"
  std::string value;  ///< "NVIDIA H200", "13.0"
  /// A record with another value is ignored; with another value of a soft field it is used, and
  /// what uses it says so.
  bool hard = true;

  bool operator==(const EnvironmentField&) const = default;
};

struct Environment {
  std::vector<EnvironmentField> fields;

  /// Empty for a field that is not there.
  std::string value(const std::string& name) const;
  /// Of the hard fields, in whatever order they stand.
  Fingerprint fingerprint() const;
};

/// The first field in which a record's environment differs from this one, hard fields first.
struct Mismatch {
  std::string field;
  std::string expected;  ///< here
  std::string got;       ///< in the record
  bool hard = true;

  /// "driver: expected 13.0, got 12.8"
  std::string text() const;
};
std::optional<Mismatch> mismatch(const Environment& here, const Environment& record);

/// The same for a record that came with the library: it was measured under another driver and
/// library of products than most users have, so these two are soft.
Environment for_shipped_records(Environment here);

/// The identity that a shared library's linker gave it (the GNU build id), in hexadecimal digits;
/// empty where it has none. Loads nothing.
std::string library_build(const std::string& path);

/// This machine's processor with its threads, instruction set and libraries.
Environment cpu_environment(int num_threads);
/// Its GPU, driver and libraries. Throws NotFound where there is none, saying what is missing.
Environment gpu_environment(int device = 0);

}  // namespace stof::tune
