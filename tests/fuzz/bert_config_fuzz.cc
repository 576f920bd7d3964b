// config.json: any bytes give a config or one of the errors a file may give, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/bert_config.h"
#include "stof/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto config =
        stof::model::parse_bert_config({reinterpret_cast<const char*>(data), size}, "config.json");
    if (config.hidden_size % config.num_heads != 0 || config.head_dim() < 1) __builtin_trap();
  } catch (const stof::Error& error) {
    if (!error.is_user_fault()) __builtin_trap();
  }
  return 0;
}
