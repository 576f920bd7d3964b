#pragma once
// Google Benchmark with results appended as JSON lines, so that figures can be followed over time.
//
// Every program takes --jsonl=FILE (append there) and --commit=NAME (default: asked of git). A line
// holds date, commit, machine, bench, case, ms (wall), cpu_ms (of the calling thread; close to ms
// on an idle machine) and every counter of the run under its own name.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace stof::bench {

/// First line a command prints; empty when it fails.
inline std::string first_line_of(const char* command) {
  std::string line;
  if (FILE* pipe = ::popen(command, "r")) {
    char buffer[256];
    if (std::fgets(buffer, sizeof buffer, pipe) != nullptr) line = buffer;
    ::pclose(pipe);
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

/// "AMD EPYC, 2 threads"
inline std::string machine_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model = "unknown CPU";
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    model = line.substr(line.find(':') + 2);
    break;
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads";
}

inline std::string commit_name() {
  std::string commit = first_line_of("git rev-parse --short=12 HEAD 2>/dev/null");
  if (commit.empty()) return "unknown";
  if (!first_line_of("git status --porcelain --untracked-files=no 2>/dev/null").empty())
    commit += "-dirty";
  return commit;
}

inline std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

/// Prints the usual table and appends one line per finished run.
class JsonLinesReporter : public benchmark::ConsoleReporter {
 public:
  JsonLinesReporter(std::string bench, const std::string& path, std::string commit)
      : bench_(std::move(bench)), commit_(std::move(commit)) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (file_) return;
    std::cerr << "--jsonl: " << path << " cannot be opened for writing\n";
    std::exit(1);
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    if (!file_.is_open()) return;
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      nlohmann::ordered_json line = {
          {"date", today()},
          {"commit", commit_},
          {"machine", machine_},
          {"bench", bench_},
          {"case", run.benchmark_name()},
          {"ms", run.real_accumulated_time / static_cast<double>(run.iterations) * 1e3},
          {"cpu_ms", run.cpu_accumulated_time / static_cast<double>(run.iterations) * 1e3},
      };
      for (const auto& [name, counter] : run.counters) line[name] = counter.value;
      file_ << line.dump() << '\n' << std::flush;
    }
  }

 private:
  std::string bench_, commit_, machine_ = machine_name();
  std::ofstream file_;
};

/// The main() of a benchmark program, after its benchmarks were registered.
inline int run_benchmarks(int argc, char** argv, const std::string& bench) {
  std::string path, commit;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.rfind("--jsonl=", 0) == 0) {
      path = argument.substr(8);
    } else if (argument.rfind("--commit=", 0) == 0) {
      commit = argument.substr(9);
    } else {
      rest.push_back(argv[i]);
    }
  }
  int rest_count = static_cast<int>(rest.size());
  benchmark::Initialize(&rest_count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(rest_count, rest.data())) return 2;
  JsonLinesReporter reporter(bench, path, commit.empty() ? commit_name() : commit);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}

}  // namespace stof::bench
