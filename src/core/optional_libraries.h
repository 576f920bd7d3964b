#pragma once
// Libraries that stof is linked with, except in the Python package: there they are opened when a
// model first needs them (cmake/run_time_functions.h).

extern "C" {
/// Null where stof is linked with them.
[[gnu::weak]] void stof_open_onednn();
[[gnu::weak]] void stof_open_sentencepiece();
}

namespace stof {

/// Go before the first function of the library that is called. Throw NotFound, saying what to
/// install.
inline void open_onednn() {
  if (stof_open_onednn != nullptr) stof_open_onednn();
}
inline void open_sentencepiece() {
  if (stof_open_sentencepiece != nullptr) stof_open_sentencepiece();
}

}  // namespace stof
