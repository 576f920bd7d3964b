#pragma once
// Error messages that point into the text they complain about.

#include <cstddef>
#include <string>
#include <string_view>

namespace stof {

/// "SUBJECT, column 5: MESSAGE", the line of `text` that holds byte `offset`, and a caret under
/// that byte. Columns count code points from 1; "line N, " is added when the text has several
/// lines. Tabs become spaces, bytes that cannot be printed become '?', and a long line is cut
/// around the caret. `offset` may be text.size() (something is missing at the end).
std::string message_with_caret(std::string_view subject, std::string_view message,
                               std::string_view text, std::size_t offset);

}  // namespace stof
