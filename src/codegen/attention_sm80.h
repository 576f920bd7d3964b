#pragma once
// The sm80 family's part of codegen/attention.h, which dispatches here.

#include <string>

#include "codegen/attention.h"

namespace stof::codegen {

int sm80_shared_bytes(const AttentionConfig& config);
std::string sm80_name(const AttentionConfig& config);
/// Throws Internal naming the field that cannot work. Whether shared memory suffices depends on the
/// GPU and is not checked here.
void validate_sm80(const AttentionConfig& config);
std::string emit_sm80(const AttentionConfig& config);

}  // namespace stof::codegen
