#pragma once
// The subcommands. Each add_* hangs one on the program; its work is done in a callback that CLI11
// calls after everything was parsed.

#include <string>

namespace CLI {
class App;
}

namespace stof::cli {

/// What holds for every subcommand.
struct Program {
  bool quiet = false;         ///< no progress bars
  std::string name = "stof";  ///< as the user typed it, for advice that can be pasted
};

void add_run_command(CLI::App& app, const Program& program);
void add_mask_command(CLI::App& app, const Program& program);
void add_bench_command(CLI::App& app, const Program& program);
void add_doctor_command(CLI::App& app, const Program& program);
void add_cache_command(CLI::App& app, const Program& program);
void add_explain_command(CLI::App& app, const Program& program);
void add_tune_command(CLI::App& app, const Program& program);
void add_calibrate_command(CLI::App& app, const Program& program);
void add_simulate_command(CLI::App& app, const Program& program);
void add_demo_command(CLI::App& app, const Program& program);
void add_completion_command(CLI::App& app, const Program& program);

/// What `stof explain MODEL` takes, beside the leaf `stof explain attention`.
void add_explain_model_options(CLI::App& explain, const Program& program);

// Leaves of `stof mask`.
void add_mask_show_command(CLI::App& mask, const Program& program);
void add_mask_stats_command(CLI::App& mask, const Program& program);
void add_mask_draw_command(CLI::App& mask, const Program& program);
void add_mask_convert_command(CLI::App& mask, const Program& program);
void add_mask_list_command(CLI::App& mask, const Program& program);

/// The shell script that completes every subcommand and option of `app`.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace stof::cli
