// The registry's primitives that are made of data: lists, block lists and boolean arrays.

#include "core/check.h"
#include "core/text.h"
#include "mask/array_text.h"
#include "mask/block_list_file.h"
#include "mask/node_factories.h"
#include "mask/registry.h"
#include "stof/npy.h"

namespace stof::mask {
namespace {

using enum ParamType;
using enum FunctionKind;
using Args = Arguments;

Mask build_intervals(const Args& a) {
  const IntLists& begin = a.int_lists("begin");
  const IntLists& end = a.int_lists("end");
  STOF_CHECK(begin.size() == end.size(), kInvalidArgument,
             "intervals: expected as many lists in end as in begin, got {} and {}", end.size(),
             begin.size());
  std::vector<HiddenRows> hidden;
  for (std::size_t i = 0; i < begin.size(); ++i) hidden.push_back({begin[i], end[i]});
  return intervals(hidden);
}

Mask build_blocks(const Args& a) {
  if (a.given("file")) {
    STOF_CHECK(!a.given("heads"), kInvalidArgument,
               "blocks: expected either a file or heads, got both");
    return block_list(read_block_list(a.path("file")));
  }
  STOF_CHECK(a.given("heads"), kInvalidArgument, "blocks: expected a file or heads, got neither");
  return block_list(block_list_of(a));
}

Mask build_dense(const Args& a) {
  if (a.given("file")) {
    STOF_CHECK(!a.given("shape") && !a.given("bits"), kInvalidArgument,
               "dense: expected either a file or shape and bits, got both");
    return dense(load_npy(a.path("file")).view());
  }
  STOF_CHECK(a.given("shape") && a.given("bits"), kInvalidArgument,
             "dense: expected a file, or shape and bits");
  return dense_from_hex(a.integers("shape"), a.text("bits"));
}

Mask build_predicate(const Args& a) {
  const std::vector<std::string>& names = a.names("names");
  const IntLists& shapes = a.int_lists("shapes");
  const IntLists& values = a.int_lists("values");
  STOF_CHECK(names.size() == shapes.size() && names.size() == values.size(), kInvalidArgument,
             "predicate: expected as many shapes and values as names, got {}, {} and {}",
             shapes.size(), values.size(), names.size());
  IntTables tables;
  for (std::size_t i = 0; i < names.size(); ++i) {
    STOF_CHECK(shapes[i].size() <= Dims::kMaxRank, kInvalidArgument,
               "predicate: table {}: expected at most {} extents, got {}", quote_text(names[i], 40),
               Dims::kMaxRank, shapes[i].size());
    tables.push_back(std::make_shared<expr::IntTable>(names[i], Dims(shapes[i]), values[i]));
  }
  return predicate_of_tables(a.text("text"), tables);
}

}  // namespace

std::vector<Function> array_functions() {
  return {
      {"document",
       kPrimitive,
       {{"lengths", kIntList, ""}},
       "packed documents: q and k in the same one; tokens past the sum see nothing",
       "document([3, 5])",
       [](const Args& a) { return document(a.integers("lengths")); }},
      {"key_lengths",
       kPrimitive,
       {{"lengths", kIntList, ""}},
       "k < lengths[b]: right padding, one length per batch entry",
       "key_lengths([5, 8])",
       [](const Args& a) { return key_lengths(a.integers("lengths")); }},
      {"tree",
       kPrimitive,
       {{"parents", kIntList, ""}, {"prefix", kInt, "0"}},
       "the first `prefix` keys, then each tree node sees itself and its ancestors",
       "tree([-1, 0, 0, 1], prefix=2)",
       [](const Args& a) { return tree(a.integers("parents"), a.integer("prefix")); }},
      {"intervals",
       kPrimitive,
       {{"begin", kIntLists, ""}, {"end", kIntLists, ""}},
       "key k is hidden from queries in [begin[i][k], end[i][k]) for every i",
       "intervals(begin=[[2, 3, 4]], end=[[3, 3, 9]])",
       build_intervals},
      {"blocks",
       kPrimitive,
       {{"file", kFile, Param::kNoDefault},
        {"block_q", kInt, "0"},
        {"block_kv", kInt, "0"},
        {"heads", kRows, Param::kNoDefault},
        {"row_sizes", kIntList, "[]"},
        {"col_sizes", kIntList, "[]"}},
       "visible blocks of a grid: heads[h][block row] = block columns, here or in a JSON file",
       "blocks(block_q=4, block_kv=4, heads=[[[0], [0, 1]]])",
       build_blocks},
      {"dense",
       kPrimitive,
       {{"file", kFile, Param::kNoDefault},
        {"shape", kIntList, Param::kNoDefault},
        {"bits", kHex, Param::kNoDefault}},
       "a boolean array: a .npy file, or its shape and its bits in hexadecimal",
       "dense(shape=[1, 1, 2, 2], bits=\"0103\")",
       build_dense},
      {"predicate",
       kPrimitive,
       {{"text", kText, ""},
        {"names", kNames, "[]"},
        {"shapes", kIntLists, "[]"},
        {"values", kIntLists, "[]"}},
       "a boolean expression in b, h, q, k and tables of whole numbers, row-major",
       "predicate(\"q - k <= step[h]\", [\"step\"], [[2]], [[1, 4]])",
       build_predicate},
  };
}

}  // namespace stof::mask
