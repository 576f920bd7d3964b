#pragma once
// How an instruct model wants a conversation to be written.

#include <cstdint>
#include <string>
#include <vector>

#include "stof/text_generator.h"

namespace stof::model {

/// The text of a conversation up to where the assistant's next message begins. `text` is the
/// checkpoint's template, a program in Jinja; those that are known are recognised by their text:
/// ChatML, and SmolLM2's, which is ChatML with a system message of its own. Throws Unsupported,
/// starting with `where`, for any other and for none, InvalidArgument for no messages and for a
/// role other than system, user and assistant.
std::string render_chat(const std::string& text, const std::vector<ChatMessage>& messages,
                        const std::string& where);

}  // namespace stof::model
