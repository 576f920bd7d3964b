#include "expr/expression.h"

#include <algorithm>

namespace stof::expr {

const char* describe(Type type) {
  switch (type) {
    case Type::kBool:
      return "a boolean";
    case Type::kInt:
      return "an integer";
    case Type::kFloat:
      return "a float";
  }
  return "?";
}

Expression::Expression(std::span<const Node> nodes, std::int32_t root,
                       std::shared_ptr<const std::vector<TableDecl>> tables)
    : tables_(std::move(tables)) {
  const auto count = static_cast<std::size_t>(root) + 1;
  std::vector<bool> needed(count);
  needed[count - 1] = true;
  for (std::size_t i = count; i-- > 0;)
    if (needed[i])
      for (const std::int32_t operand : nodes[i].operands())
        needed[static_cast<std::size_t>(operand)] = true;
  std::vector<std::int32_t> place(count, -1);
  std::vector<Node> kept;
  for (std::size_t i = 0; i < count; ++i) {
    if (!needed[i]) continue;
    place[i] = static_cast<std::int32_t>(kept.size());
    Node node = nodes[i];
    for (std::size_t arg = 0; arg < node.num_args; ++arg)
      node.args[arg] = place[static_cast<std::size_t>(node.args[arg])];
    kept.push_back(node);
  }
  nodes_ = std::make_shared<const std::vector<Node>>(std::move(kept));
}

bool Expression::uses(Op leaf) const {
  return std::any_of(nodes_->begin(), nodes_->end(),
                     [&](const Node& node) { return node.op == leaf; });
}

bool Expression::reads_table(std::size_t table) const {
  return std::any_of(nodes_->begin(), nodes_->end(), [&](const Node& node) {
    return node.op == Op::kTable && node.integer == static_cast<std::int64_t>(table);
  });
}

}  // namespace stof::expr
