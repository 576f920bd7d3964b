// stof completion: shell scripts made from the program's own option tree, so they never go stale.

#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "options.h"
#include "output.h"

namespace stof::cli {
namespace {

/// One subcommand: the words that lead to it and what may follow.
struct Level {
  std::string path;  ///< "stof mask stats"
  std::vector<const CLI::App*> subcommands;
  std::vector<const CLI::Option*> options;  ///< its own and, by fallthrough, its parents'
};

void collect_levels(const CLI::App& app, const std::string& path,
                    std::vector<const CLI::Option*> inherited, std::vector<Level>& levels) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_lnames().empty()) continue;
    const auto same_name = [option](const CLI::Option* other) {
      return other->get_lnames() == option->get_lnames();
    };
    std::erase_if(inherited, same_name);
    inherited.push_back(option);
  }
  levels.push_back({path, {}, inherited});
  const std::size_t index = levels.size() - 1;
  for (const CLI::App* sub : app.get_subcommands({})) {
    levels[index].subcommands.push_back(sub);
    collect_levels(*sub, path + " " + sub->get_name(), inherited, levels);
  }
}

/// The values an option is limited to: its type name when that lists alternatives, "a|b|c".
std::string option_values(const CLI::Option& option) {
  std::string names = option.get_type_name();
  const std::size_t colon = names.rfind(':');
  if (colon != std::string::npos) names = names.substr(colon + 1);
  if (names.find('|') == std::string::npos) return "";
  std::replace(names.begin(), names.end(), '|', ' ');
  return names;
}

std::string words(const Level& level) {
  std::string text;
  for (const CLI::App* sub : level.subcommands) text += sub->get_name() + " ";
  for (const CLI::Option* option : level.options)
    for (const std::string& name : option->get_lnames()) text += "--" + name + " ";
  if (!text.empty()) text.pop_back();
  return text;
}

std::string bash_script(const std::vector<Level>& levels) {
  std::string commands, values;
  for (const Level& level : levels) {
    commands += fmt::format("    \"{}\") words=\"{}\" ;;\n", level.path, words(level));
    for (const CLI::Option* option : level.options) {
      const std::string list = option_values(*option);
      if (list.empty()) continue;
      for (const std::string& name : option->get_lnames())
        values += fmt::format("    \"{} --{}\") words=\"{}\" ;;\n", level.path, name, list);
    }
  }
  std::string paths;
  for (const Level& level : levels) paths += fmt::format("      \"{}\"|\\\n", level.path);
  paths.erase(paths.size() - 3);  // the last "|\" and newline
  return fmt::format(R"(# bash completion for stof; load with: source <(stof completion bash)
_stof() {{
  local path=stof word words="" current="${{COMP_WORDS[COMP_CWORD]}}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $word" in
{}) path="$path $word" ;;
    esac
  done
  case "$path" in
{}  esac
  case "$path ${{COMP_WORDS[COMP_CWORD-1]}}" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _stof stof
)",
                     paths, commands, values);
}

std::string zsh_script(const std::vector<Level>& levels) {
  return "# zsh completion for stof; load with: source <(stof completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script(levels);
}

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "'";
}

/// True at exactly this level: all its words were typed and none of a deeper one.
std::string fish_condition(const Level& level) {
  std::string condition;
  const auto require = [&condition](const std::string& test) {
    condition += (condition.empty() ? "" : "; and ") + test;
  };
  std::size_t begin = level.path.find(' ');
  while (begin != std::string::npos) {
    const std::size_t end = level.path.find(' ', begin + 1);
    require("__fish_seen_subcommand_from " + level.path.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  std::string deeper;
  for (const CLI::App* sub : level.subcommands) deeper += " " + sub->get_name();
  if (!deeper.empty()) require("not __fish_seen_subcommand_from" + deeper);
  return condition.empty() ? "true" : condition;
}

std::string fish_script(const std::vector<Level>& levels) {
  std::string text = "# fish completion for stof; load with: stof completion fish | source\n";
  for (const Level& level : levels) {
    const std::string condition = fish_quoted(fish_condition(level));
    for (const CLI::App* sub : level.subcommands)
      text += fmt::format("complete -c stof -f -n {} -a {} -d {}\n", condition, sub->get_name(),
                          fish_quoted(sub->get_description()));
    for (const CLI::Option* option : level.options) {
      const std::string list = option_values(*option);
      const std::string takes = option->get_items_expected_max() == 0 ? ""
                                : list.empty()                        ? " -r"
                                               : " -x -a " + fish_quoted(list);
      for (const std::string& name : option->get_lnames())
        text += fmt::format("complete -c stof -n {} -l {}{} -d {}\n", condition, name, takes,
                            fish_quoted(option->get_description()));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Level> levels;
  collect_levels(app, "stof", {}, levels);
  if (shell == "fish") return fish_script(levels);
  return shell == "zsh" ? zsh_script(levels) : bash_script(levels);
}

void add_completion_command(CLI::App& app, const Program&) {
  auto shell = std::make_shared<std::string>();
  CLI::App& completion = *app.add_subcommand("completion", "Print a shell completion script");
  completion.fallthrough();
  completion.add_option("SHELL", *shell, "For which shell")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  completion.footer(examples({"source <(stof completion bash)", "source <(stof completion zsh)",
                              "stof completion fish | source"}));
  completion.callback([&app, shell] { write_output(completion_script(app, *shell)); });
}

}  // namespace stof::cli
