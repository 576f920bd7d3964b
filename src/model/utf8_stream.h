#pragma once
// Text that arrives in pieces which may end inside a character.

#include <string>
#include <string_view>

namespace stof::model {

/// Whole characters go out as soon as they are there. Bytes that are not UTF-8 become U+FFFD, one
/// for each maximal part of a character (Unicode 15, section 3.9, "U+FFFD Substitution"), as Rust's
/// and Python's decoders do; the result is that of all the pieces at once.
class Utf8Stream {
 public:
  /// What can be said after `bytes`.
  std::string push(std::string_view bytes);
  /// U+FFFD where the text ends inside a character.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace stof::model
