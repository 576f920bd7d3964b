// Canonical JSON of masks: {"op": name, arguments in signature order, "of": masks}.

#include <nlohmann/json.hpp>

#include "mask/array_text.h"
#include "mask/canonical.h"

namespace stof::mask {
namespace {

// Keeps the order in which fields are written.
using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json_value(const Form& form) {
  OrderedJson object;
  object["op"] = form.function->name;
  for (const auto& [name, value] : form.args) {
    if (const auto* array = std::get_if<std::shared_ptr<const BitArray>>(&value)) {
      object["shape"] = (*array)->shape;
      object[name] = hex_of(**array);
    } else if (const auto* rows = std::get_if<std::shared_ptr<const BlockRows>>(&value)) {
      object[name] = **rows;
    } else if (const auto* tables = std::get_if<IntTables>(&value)) {
      OrderedJson& names = object["names"] = OrderedJson::array();
      OrderedJson shapes = OrderedJson::array(), values = OrderedJson::array();
      for (const auto& table : *tables) {
        names.push_back(table->name());
        shapes.push_back(IntList(table->shape().begin(), table->shape().end()));
        values.push_back(table->values());
      }
      object["shapes"] = std::move(shapes);
      object[name] = std::move(values);
    } else if (const auto* real = std::get_if<double>(&value)) {
      object[name] = *real == 0 ? 0.0 : *real;
    } else {
      std::visit(
          [&, key = name](const auto& x) {
            if constexpr (requires { OrderedJson(x); }) object[key] = x;
          },
          value);
    }
  }
  if (form.children.empty()) return object;
  if (form.function->find_param("of")->type == ParamType::kMask) {
    object["of"] = to_json_value(form.children.front());
    return object;
  }
  OrderedJson& list = object["of"] = OrderedJson::array();
  for (const Form& child : form.children) list.push_back(to_json_value(child));
  return object;
}

}  // namespace

std::string json_of(const Form& form) { return to_json_value(form).dump(); }

}  // namespace stof::mask
