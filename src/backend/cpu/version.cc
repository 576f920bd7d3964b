#include "stof/system_info.h"

namespace stof {

std::string_view version() { return STOF_VERSION; }

}  // namespace stof
