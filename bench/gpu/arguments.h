#pragma once
// The command line of a GPU benchmark: options with a value, and the names of what to run.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace stof::bench {

class Arguments {
 public:
  /// `options`: what a program takes beside --json FILE. Ends it where an argument can't be taken.
  Arguments(int argc, char** argv, std::map<std::string, std::string*> options = {}) {
    std::string json_path;
    options["--json"] = &json_path;
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (!argument.starts_with("--")) {
        names_.push_back(argument);
        continue;
      }
      const auto option = options.find(argument);
      if (option == options.end()) {
        std::string known;
        for (const auto& [name, value] : options) known += " " + name;
        fail(argument + ": expected one of" + known);
      }
      if (i + 1 == argc) fail(argument + ": expected a value after it");
      *option->second = argv[++i];
    }
    if (json_path.empty()) return;
    json_ = std::fopen(json_path.c_str(), "a");
    if (json_ == nullptr)
      fail("--json: cannot append to " + json_path + ": " + std::strerror(errno));
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    if (json_ != nullptr) std::fclose(json_);
  }

  /// Where lines go; null: nobody asked for them.
  std::FILE* json() const { return json_; }
  bool wants(const std::string& name) const {
    return names_.empty() || std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  /// Ends the program where a name was given that is none of these.
  void expect_names(const std::vector<std::string>& known) const {
    for (const std::string& name : names_) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      std::string all;
      for (const std::string& one : known) all += " " + one;
      fail(name + ": expected " + (known.empty() ? "no names" : "some of" + all));
    }
  }

 private:
  [[noreturn]] static void fail(const std::string& message) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::exit(2);
  }

  std::FILE* json_ = nullptr;
  std::vector<std::string> names_;
};

/// The exit code of a program that cannot go on; says why.
inline int give_up(const std::exception& error) {
  std::fprintf(stderr, "BAD: %s\n", error.what());
  return 1;
}

}  // namespace stof::bench
