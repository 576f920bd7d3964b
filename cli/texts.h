#pragma once
// The texts a subcommand works on: arguments, a file or standard input.

#include <string>
#include <vector>

namespace stof::cli {

/// `arguments` as they are, or the lines of `file` ("-" is standard input); empty lines count, so
/// that line i is text i. Throws InvalidArgument naming the source: both or neither given, no text,
/// or bytes that are not UTF-8, with line and byte.
std::vector<std::string> read_texts(const std::vector<std::string>& arguments,
                                    const std::string& file);

/// Everything in `file` ("-" is standard input) as one text, checked to be UTF-8.
std::string read_document(const std::string& file);

}  // namespace stof::cli
