#pragma once
// Block lists read from JSON files.

#include <string>

#include "mask/registry.h"
#include "stof/mask.h"

namespace stof::mask {

/// The block list in the arguments of blocks(); `heads` must be given.
BlockList block_list_of(const Arguments& arguments);

/// Reads {"block_q": 64, "block_kv": 64, "heads": [[[0, 2], [1, 3]]]}; "row_sizes" and "col_sizes"
/// may stand for the block sizes. Throws NotFound, Io, or Corrupt naming the file and the field.
BlockList read_block_list(const std::string& path);

}  // namespace stof::mask
