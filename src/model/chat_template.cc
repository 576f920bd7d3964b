#include "model/chat_template.h"

#include "core/check.h"
#include "core/text.h"

namespace stof::model {
namespace {

constexpr std::string_view kSmolLm2System =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

// The templates as the files spell them, \n being two characters of Jinja.
constexpr std::string_view kChatMl =
    R"({% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + )"
    R"(message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %})"
    R"({{ '<|im_start|>assistant\n' }}{% endif %})";
constexpr std::string_view kSmolLm2 =
    R"({% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %})"
    R"({{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging )"
    R"(Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + )"
    R"(message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %})"
    R"({{ '<|im_start|>assistant\n' }}{% endif %})";

/// Files hold the two characters or the newline itself; both mean the same to Jinja.
std::string with_escaped_newlines(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string chat_ml(std::string_view role, std::string_view content) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
}

}  // namespace

std::string render_chat(const std::string& text, const std::vector<ChatMessage>& messages,
                        const std::string& where) {
  const std::string known = with_escaped_newlines(text);
  STOF_CHECK(known == kChatMl || known == kSmolLm2, kUnsupported,
             "{}: chat template: expected ChatML's or SmolLM2's, got {}; write the prompt as the "
             "model wants it",
             where, text.empty() ? "none" : quote_text(text));
  STOF_CHECK(!messages.empty(), kInvalidArgument, "messages: expected at least one, got none");
  std::string prompt;
  if (known == kSmolLm2 && messages[0].role != "system") prompt = chat_ml("system", kSmolLm2System);
  for (const ChatMessage& message : messages) {
    STOF_CHECK(message.role == "system" || message.role == "user" || message.role == "assistant",
               kInvalidArgument, "role: expected system, user or assistant, got {}",
               quote_text(message.role));
    prompt += chat_ml(message.role, message.content);
  }
  return prompt + "<|im_start|>assistant\n";
}

}  // namespace stof::model
