#pragma once
// Reads mask functions and their arguments from JSON.

#include <string_view>

#include "mask/registry.h"

namespace stof::mask {

/// The object's fields as arguments of `function` (no "op" field). Throws Corrupt when the text is
/// not JSON, InvalidArgument naming the field's path ("$.heads[0][2]: ...").
Arguments read_arguments(const Function& function, std::string_view json);

}  // namespace stof::mask
