#pragma once
// Errors of looking up a tensor by name, shared by files and checkpoints.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/text.h"
#include "stof/tensor.h"

namespace stof {

/// The element called `name`; throws NotFound naming `path` and near names.
template <class Value>
const Value& require_entry(const std::map<std::string, Value, std::less<>>& entries,
                           std::string_view name, const std::string& path) {
  const auto found = entries.find(name);
  if (found != entries.end()) return found->second;
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const auto& [known, value] : entries) names.push_back(known);
  throw_error(ErrorCode::kNotFound, "{}: has no tensor {} among its {}{}", path, quote_text(name),
              names.size(), near_name_hint(name, names));
}

/// Throws Corrupt naming everything where the shapes differ.
inline void require_shape(const TensorView& view, const Dims& shape, std::string_view name,
                          const std::string& path) {
  STOF_CHECK(view.shape == shape, kCorrupt,
             "{}: tensor {}: expected shape {}, got {}; the file does not belong to this "
             "configuration",
             path, quote_text(name), shape.to_string(), view.shape.to_string());
}

}  // namespace stof
