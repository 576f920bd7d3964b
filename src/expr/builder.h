#pragma once
// Builder: makes typed vertices. Equal ones are one, constants are folded, and what has an obvious
// simpler form gets it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/expression.h"

namespace stof::expr {

/// Why a vertex can't be made: "& takes two booleans or two integers, got ...".
struct TypeFault {
  std::string message;
};

class Builder {
 public:
  /// At most that many vertices, and that many operators on the way from the result to a leaf: what
  /// walks an expression may be recursive.
  static constexpr std::size_t kMaxNodes = 4096;
  static constexpr int kMaxHeight = 1000;

  Builder(std::shared_ptr<const std::vector<TableDecl>> tables, bool floats)
      : tables_(std::move(tables)), floats_(floats) {}

  // Each gives a vertex, or throws TypeFault.
  std::int32_t boolean(bool value);
  std::int32_t integer(std::int64_t value);
  std::int32_t real(float value);
  std::int32_t variable(Op op);
  /// For a table of booleans its element != 0.
  std::int32_t table(std::size_t table, std::span<const std::int32_t> indices);
  std::int32_t unary(Op op, std::int32_t a);
  std::int32_t binary(Op op, std::int32_t a, std::int32_t b);
  std::int32_t where(std::int32_t condition, std::int32_t a, std::int32_t b);
  std::int32_t to_int(std::int32_t a);
  std::int32_t to_float(std::int32_t a);

  Type type(std::int32_t node) const { return at(node).type; }
  Expression finish(std::int32_t root) const { return {nodes_, root, tables_}; }

 private:
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  bool is_constant(std::int32_t node) const { return at(node).op == Op::kConstant; }
  bool is_integer(std::int32_t node, std::int64_t value) const;
  /// The vertex, made if it is new; folded where all its operands are constants.
  std::int32_t add(const Node& node);
  std::int32_t add(Op op, Type type, std::initializer_list<std::int32_t> operands);
  std::int32_t fold(const Node& node);
  Type common_type(std::int32_t a, std::int32_t b) const;
  std::int32_t convert(std::int32_t a, Type type);
  std::int32_t logical(Op op, std::int32_t a, std::int32_t b);
  std::int32_t compare(Op op, std::int32_t a, std::int32_t b);
  std::int32_t sum(Op op, std::int32_t a, std::int32_t b);
  std::int32_t product(Op op, std::int32_t a, std::int32_t b);

  std::shared_ptr<const std::vector<TableDecl>> tables_;
  bool floats_;
  std::vector<Node> nodes_;
  std::vector<int> heights_;
  std::unordered_multimap<std::uint64_t, std::int32_t> known_;
};

}  // namespace stof::expr
