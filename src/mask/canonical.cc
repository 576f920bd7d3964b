#include "mask/canonical.h"

#include <algorithm>

#include "core/check.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

using FormArguments = std::vector<std::pair<std::string, FormValue>>;

Form make_form(std::string_view name, FormArguments args = {}, std::vector<Form> children = {}) {
  Form form;
  form.function = find_function(name);
  STOF_ASSERT(form.function != nullptr);
  form.args = std::move(args);
  form.children = std::move(children);
  return form;
}

bool is(const Form& form, std::string_view name) { return form.function->name == name; }

std::int64_t integer(const Form& form, std::string_view name) {
  return std::get<std::int64_t>(form.arg(name));
}

bool all_equal(const IntList& list, std::int64_t value) {
  return std::all_of(list.begin(), list.end(), [&](std::int64_t x) { return x == value; });
}

// --- spec -> form, where the registry's function is not the spec word for word ------------------

IntLists split(const IntList& joined, std::int64_t lists) {
  IntLists out;
  const auto length = joined.size() / static_cast<std::size_t>(std::max<std::int64_t>(lists, 1));
  for (std::int64_t i = 0; i < lists; ++i) {
    const auto begin = joined.begin() + i * static_cast<std::ptrdiff_t>(length);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length));
  }
  return out;
}

FormValue to_form_value(const Value& value) {
  return std::visit([](const auto& x) { return FormValue(x); }, value);
}

Form form_of(const Spec& spec) {
  if (spec.name == "intervals") {
    const auto lists = std::get<std::int64_t>(spec.args[0].second);
    return make_form("intervals", {{"begin", split(std::get<IntList>(spec.args[1].second), lists)},
                                   {"end", split(std::get<IntList>(spec.args[2].second), lists)}});
  }
  FormArguments args;
  for (const auto& [name, value] : spec.args) args.emplace_back(name, to_form_value(value));
  if (spec.name == "dense") {
    args[0].first = "bits";
    return make_form("dense", std::move(args));
  }
  if (spec.name == "predicate") {
    args[1].first = "values";
    return make_form("predicate", std::move(args));
  }
  if (spec.name == "random_blocks_rate") return make_form("random_blocks", std::move(args));
  if (spec.name == "random_elements") return make_form("random", std::move(args));
  if (spec.name == "block_list") {
    Form form = make_form("blocks");
    for (const Param& param : form.function->params) {  // heads stands before the sizes
      for (auto& arg : args) {
        if (arg.first == param.name) form.args.push_back(std::move(arg));
      }
    }
    return form;
  }
  return make_form(spec.name, std::move(args));
}

// --- rules --------------------------------------------------------------------------------------

Form simplify_junction(std::string_view name, std::vector<Form> operands) {
  const bool is_and = name == "and";
  const char* neutral = is_and ? "all" : "none";
  const char* decisive = is_and ? "none" : "all";
  std::erase_if(operands, [&](const Form& form) { return is(form, neutral); });
  for (const Form& form : operands) {
    if (is(form, decisive)) return make_form(decisive);
  }
  std::sort(operands.begin(), operands.end(),
            [](const Form& a, const Form& b) { return a.key < b.key; });
  operands.erase(std::unique(operands.begin(), operands.end(),
                             [](const Form& a, const Form& b) { return a.key == b.key; }),
                 operands.end());
  if (operands.empty()) return make_form(neutral);
  if (operands.size() == 1) return std::move(operands.front());
  return make_form(name, {}, std::move(operands));
}

Form simplify_not(Form child) {
  if (is(child, "all")) return make_form("none");
  if (is(child, "none")) return make_form("all");
  if (is(child, "not")) return std::move(child.children.front());
  std::vector<Form> children;
  children.push_back(std::move(child));
  return make_form("not", {}, std::move(children));
}

Form simplify_window(Form form) {
  const std::int64_t left = integer(form, "left");
  const std::int64_t right = integer(form, "right");
  if (left < 0 && right < 0) return make_form("all");
  if (left < 0) return make_form("causal", {{"offset", right}});
  return form;
}

Form simplify_block_window(Form form) {
  const std::int64_t left = integer(form, "left");
  const std::int64_t block = integer(form, "block");
  if (integer(form, "right") != 0) return form;
  if (left == 0) return make_form("chunked", {{"n", block}});
  if (left < 0) return make_form("block_causal", {{"n", block}});
  return form;
}

Form simplify_prefix(Form form) {
  const std::int64_t n = integer(form, "n");
  return n == 0 ? make_form("none") : make_form("prefix", {{"n", n}});
}

Form simplify_global(Form form) {
  const std::int64_t cols = integer(form, "cols");
  if (integer(form, "rows") != 0) return form;
  return cols == 0 ? make_form("none") : make_form("prefix", {{"n", cols}});
}

Form simplify_global_tokens(Form form) {
  const bool some = !std::get<IntList>(form.arg("tokens")).empty();
  const bool seen = std::get<bool>(form.arg("rows")) || std::get<bool>(form.arg("cols"));
  return some && seen ? std::move(form) : make_form("none");
}

Form simplify_document(Form form) {
  auto& lengths = std::get<IntList>(form.args[0].second);
  std::erase(lengths, 0);
  return lengths.empty() ? make_form("none") : std::move(form);
}

Form simplify_neighbourhood(Form form) {
  for (auto& [name, value] : form.args) {
    auto& list = std::get<IntList>(value);
    if ((name == "dilation" || name == "tile") && all_equal(list, 1)) list.clear();
    if (name == "shift" && all_equal(list, 0)) list.clear();
  }
  return form;
}

Form simplify_dilated(Form form) {
  const std::int64_t w = integer(form, "window");
  return integer(form, "rate") == 1 ? make_form("window", {{"left", w}, {"right", w}})
                                    : std::move(form);
}

Form simplify_leaf(Form form) {
  using Rule = Form (*)(Form);
  static constexpr std::pair<std::string_view, Rule> kRules[] = {
      {"window", simplify_window},
      {"dilated", simplify_dilated},
      {"block_window", simplify_block_window},
      {"prefix", simplify_prefix},
      {"sink", simplify_prefix},
      {"global", simplify_global},
      {"global_tokens", simplify_global_tokens},
      {"document", simplify_document},
      {"neighbourhood", simplify_neighbourhood},
  };
  for (const auto& [name, rule] : kRules) {
    if (is(form, name)) return rule(std::move(form));
  }
  return form;
}

Form with_key(Form form) {
  if (form.key.empty()) form.key = text_of(form, ListStyle::kHashed);
  return form;
}

/// Appends the operands of `node`, those of nested nodes of the same name in their place.
void append_operands(const Spec& junction, std::vector<Form>& operands) {
  for (const auto& child : junction.children) {
    Form form = canonical_form(*child);
    if (is(form, junction.name)) {
      for (Form& inner : form.children) operands.push_back(std::move(inner));
    } else {
      operands.push_back(std::move(form));
    }
  }
}

}  // namespace

const FormValue& Form::arg(std::string_view name) const {
  for (const auto& [arg_name, value] : args) {
    if (arg_name == name) return value;
  }
  throw_error(ErrorCode::kInternal, "{} has no argument {}; please report it", function->name,
              name);
}

Form canonical_form(const Node& node) {
  const Spec spec = node.spec();
  if (spec.name == "and" || spec.name == "or") {
    std::vector<Form> operands;
    append_operands(spec, operands);
    return with_key(simplify_junction(spec.name, std::move(operands)));
  }
  if (spec.name == "not") return with_key(simplify_not(canonical_form(*spec.children.front())));
  Form form = form_of(spec);
  for (const auto& child : spec.children) form.children.push_back(canonical_form(*child));
  if ((is(form, "per_head") || is(form, "per_batch")) && form.children.size() == 1) {
    return std::move(form.children.front());
  }
  return with_key(simplify_leaf(std::move(form)));
}

}  // namespace stof::mask
