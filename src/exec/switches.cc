#include "exec/switches.h"

#include <algorithm>

#include "core/check.h"
#include "core/env.h"
#include "core/text.h"

namespace stof::exec {

FuseSwitches FuseSwitches::parse(std::string_view text) {
  FuseSwitches switches;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word == "off") {
      switches.fuse = false;
    } else if (word.size() > 1 && word[0] == '-') {
      switches.disabled.emplace(word.substr(1));
    } else {
      STOF_CHECK(word == "on", kInvalidArgument,
                 "STOF_FUSE: expected on, off or families to leave out, as in \"-gemm_sm90,-row\", "
                 "got {}",
                 quote_text(std::string(word)));
    }
  }
  return switches;
}

FuseSwitches FuseSwitches::from_environment() {
  return parse(env_string("STOF_FUSE").value_or(""));
}

}  // namespace stof::exec
