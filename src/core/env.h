#pragma once
// The only place that reads environment variables. docs/environment.md lists them all.

#include <optional>
#include <string>

namespace stof {

/// Value of a variable; empty and unset are the same.
std::optional<std::string> env_string(const char* name);

/// Throws InvalidArgument naming the variable when it is set to something else than a whole number
/// in [low, high].
std::optional<long> env_int(const char* name, long low, long high);

/// Per-user cache folder: $STOF_CACHE, else $XDG_CACHE_HOME/stof, else ~/.cache/stof, else (no
/// home) /tmp/stof-cache. Not created.
std::string cache_folder();

}  // namespace stof
