#pragma once
// Work that is begun before it is asked for: compiling the next candidates while one is measured.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace stof::tune {

class Background {
 public:
  explicit Background(int num_threads);
  /// Waits for what has begun; the rest is left undone.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// `work` may not throw. A name that was given before is ignored.
  void begin(const std::string& name, std::function<void()> work);
  /// Returns when the work of that name is not running: done, or, where it had not begun, dropped.
  void settle(const std::string& name);

 private:
  struct Job {
    std::string name;
    std::function<void()> work;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::set<std::string> known_, running_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stof::tune
