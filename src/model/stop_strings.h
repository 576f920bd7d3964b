#pragma once
// Ends a text that arrives in pieces before the first of several strings.

#include <string>
#include <string_view>
#include <vector>

namespace stof::model {

class StopStrings {
 public:
  /// Throws InvalidArgument for an empty string.
  explicit StopStrings(std::vector<std::string> strings);

  /// What of the text so far is certain to stand before every stop string and was not handed out
  /// yet. After stopped() nothing.
  std::string push(std::string_view piece);
  bool stopped() const { return stopped_; }
  /// The rest, where the text ends without one.
  std::string finish();

 private:
  std::vector<std::string> strings_;
  std::string held_;  ///< might begin a stop string
  bool stopped_ = false;
};

}  // namespace stof::model
