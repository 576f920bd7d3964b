#pragma once
// Validators whose messages say what was expected and what was got.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace stof::cli {

/// Longest sequence of the library.
inline constexpr std::int64_t kMaxSequence = 2147483647;

/// A decimal whole number in [low, high]. Use with Option::transform(), not check(): it also writes
/// the number so that CLI11 reads it as decimal.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

/// One of `names`, listed in the message and in --help.
CLI::Validator one_of(std::vector<std::string> names);

/// Text for App::footer(): "Examples:" and one indented line each.
std::string examples(const std::vector<std::string>& lines);

}  // namespace stof::cli
