#include "mask/block_list_file.h"

#include "core/check.h"
#include "core/file.h"
#include "mask/json_reader.h"

namespace stof::mask {
namespace {

/// A block list is a few bytes a block: 1 GiB holds more blocks than any plan.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

}  // namespace

BlockList block_list_of(const Arguments& arguments) {
  BlockList list;
  list.block_q = arguments.integer("block_q");
  list.block_kv = arguments.integer("block_kv");
  list.row_sizes = arguments.integers("row_sizes");
  list.col_sizes = arguments.integers("col_sizes");
  list.heads = arguments.rows("heads");
  return list;
}

BlockList read_block_list(const std::string& path) {
  const std::string text = read_text_file(path, kMaxFileBytes);
  try {
    const Arguments arguments = read_arguments(*find_function("blocks"), text);
    STOF_CHECK(arguments.given("heads"), kCorrupt, "$.heads is missing");
    return block_list_of(arguments);
  } catch (const Error& error) {
    throw_error(ErrorCode::kCorrupt, "{}: {}", path, error.what());
  }
}

}  // namespace stof::mask
