#include "tune/background.h"

#include <algorithm>

namespace stof::tune {

Background::Background(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { loop(); });
}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Background::begin(const std::string& name, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!known_.insert(name).second) return;
    waiting_.push_back({name, std::move(work)});
  }
  changed_.notify_all();
}

void Background::settle(const std::string& name) {
  std::unique_lock lock(mutex_);
  std::erase_if(waiting_, [&](const Job& job) { return job.name == name; });
  changed_.wait(lock, [&] { return !running_.contains(name); });
}

void Background::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const Job job = std::move(waiting_.front());
    waiting_.pop_front();
    running_.insert(job.name);
    lock.unlock();
    job.work();
    lock.lock();
    running_.erase(job.name);
    changed_.notify_all();
  }
}

}  // namespace stof::tune
