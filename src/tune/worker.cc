#include "tune/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/check.h"
#include "core/json.h"

namespace stof::tune {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMaxMessageBytes = 64u << 20;

/// Sends length and text; false where the other end is gone.
bool send_message(int descriptor, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += text;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(descriptor, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

enum class Received { kMessage, kClosed, kLate };

/// Reads exactly `count` bytes until the deadline.
Received receive_bytes(int descriptor, char* to, std::size_t count, Clock::time_point deadline) {
  while (count > 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Received::kLate;
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ::recv(descriptor, to, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Received::kClosed;
    to += got;
    count -= static_cast<std::size_t>(got);
  }
  return Received::kMessage;
}

Received receive_message(int descriptor, std::string* text, double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  std::uint32_t length = 0;
  const Received got =
      receive_bytes(descriptor, reinterpret_cast<char*>(&length), sizeof(length), deadline);
  if (got != Received::kMessage) return got;
  if (length > kMaxMessageBytes) return Received::kClosed;  // scribbled over
  text->resize(length);
  return receive_bytes(descriptor, text->data(), length, deadline);
}

/// Both ends; the child inherits the second.
std::pair<int, int> make_sockets() {
  int ends[2] = {-1, -1};
  STOF_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, kIo,
             "tuning: no socket to a child process: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

/// fork(); in the parent the child's end of the sockets is closed, and both where there is no
/// child.
pid_t fork_beside(int ours, int theirs) {
  const pid_t pid = ::fork();
  const int error = errno;
  if (pid != 0) ::close(theirs);
  if (pid < 0) ::close(ours);
  STOF_CHECK(pid >= 0, kIo, "tuning: no child process: {}", std::strerror(error));
  return pid;
}

/// What every child does first: it ends with its parent, and Ctrl-C is the parent's business.
void prepare_child(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before that was said
  std::signal(SIGINT, SIG_IGN);
}

Json measurement_json(const Measurement& measurement) {
  return {{"microseconds", measurement.microseconds},
          {"failure", measurement.failure},
          {"wrong", measurement.wrong},
          {"late", measurement.late}};
}

Measurement read_measurement(const Json& json) {
  return {json.at("microseconds").get<double>(), json.at("failure").get<std::string>(),
          json.at("wrong").get<bool>(), json.at("late").get<bool>()};
}

Range read_range(const Json& json) { return {json.at(0).get<int>(), json.at(1).get<int>()}; }

Json environment_json(const Environment& environment) {
  Json fields = Json::array();
  for (const EnvironmentField& field : environment.fields)
    fields.push_back({field.name, field.value, field.hard});
  return fields;
}

Json answer_measure(Bench& bench, const Json& request) {
  const auto choice = fusion::Choice::from_text(request.at("choice").get<std::string>());
  const std::string text = request.at("incumbent").get<std::string>();
  std::optional<fusion::Choice> incumbent;
  if (!text.empty()) incumbent = fusion::Choice::from_text(text);
  return measurement_json(
      bench.measure(read_range(request.at("range")), choice, incumbent ? &*incumbent : nullptr,
                    request.at("incumbent_us").get<double>(), request.at("seconds").get<double>()));
}

Json answer_candidates(Bench& bench, const Json& request) {
  Json list = Json::array();
  for (const Candidate& candidate : bench.candidates(read_range(request.at("range"))))
    list.push_back({{"choice", candidate.choice.text()},
                    {"predicted_us", candidate.predicted_us},
                    {"library", candidate.is_library}});
  return list;
}

Json answer_end_to_end(Bench& bench, const Json& request) {
  std::vector<TunedPlan> plans;
  for (const Json& entry : request.at("plans")) {
    TunedPlan& plan = plans.emplace_back();
    for (const Json& range : entry.at("partition")) plan.partition.push_back(read_range(range));
    for (const Json& choice : entry.at("choices"))
      plan.choices.push_back(fusion::Choice::from_text(choice.get<std::string>()));
  }
  Json list = Json::array();
  for (const Measurement& measurement :
       bench.measure_end_to_end(plans, request.at("seconds").get<double>()))
    list.push_back(measurement_json(measurement));
  return list;
}

Json answer_to(Bench& bench, const Json& request) {
  const std::string what = request.at("what").get<std::string>();
  if (what == "environment") return environment_json(bench.environment());
  if (what == "untuned scheme") return bench.untuned_scheme().text();
  if (what == "candidates") return answer_candidates(bench, request);
  if (what == "measure") return answer_measure(bench, request);
  STOF_ASSERT(what == "end to end");
  return answer_end_to_end(bench, request);
}

constexpr double kForever = 1e8;  // seconds: a child waits for as long as its parent lives

/// For a bench that could not be made. As the answer to the first request: who sends a message and
/// ends at once may be gone before the other side has asked.
void answer_error(int descriptor, ErrorCode code, const std::string& what) {
  std::string request;
  if (receive_message(descriptor, &request, kForever) != Received::kMessage) return;
  const Json answer = {{"error", what}, {"code", static_cast<int>(code)}};
  send_message(descriptor, answer.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void serve(const std::function<std::unique_ptr<Bench>()>& make_bench, int descriptor) {
  try {
    serve(*make_bench(), descriptor);
  } catch (const Error& error) {
    answer_error(descriptor, error.code(), error.what());
  } catch (const std::exception& error) {
    answer_error(descriptor, ErrorCode::kInternal, error.what());
  }
}

void serve(Bench& bench, int descriptor) {
  std::string text;
  while (receive_message(descriptor, &text, kForever) == Received::kMessage) {
    Json answer;
    try {
      answer["result"] = answer_to(bench, Json::parse(text));
    } catch (const Error& error) {
      answer["error"] = error.what();
      answer["code"] = static_cast<int>(error.code());
    } catch (const std::exception& error) {
      answer["error"] = error.what();
      answer["code"] = static_cast<int>(ErrorCode::kInternal);
    }
    if (!bench.usable()) answer["last"] = true;
    // Messages of drivers need not be UTF-8.
    if (!send_message(descriptor, answer.dump(-1, ' ', false, Json::error_handler_t::replace)))
      return;
  }
}

StartChild fork_child(std::function<std::unique_ptr<Bench>()> make_bench) {
  return [make_bench = std::move(make_bench)] {
    const auto [ours, theirs] = make_sockets();
    const pid_t parent = ::getpid();
    const pid_t pid = fork_beside(ours, theirs);
    if (pid > 0) return ChildProcess{pid, ours};
    prepare_child(parent);
    ::close(ours);
    try {
      serve(make_bench, theirs);
    } catch (...) {
      ::_exit(1);  // never into what the parent does
    }
    ::_exit(0);
  };
}

StartChild execute_child(std::vector<std::string> arguments) {
  return [arguments = std::move(arguments)] {
    const auto [ours, theirs] = make_sockets();
    std::vector<char*> pointers;
    for (const std::string& argument : arguments)
      pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t pid = fork_beside(ours, theirs);
    if (pid > 0) return ChildProcess{pid, ours};
    prepare_child(parent);
    ::dup2(theirs, STDIN_FILENO);  // without the flag that closes the original
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  };
}

namespace {

std::string end_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("crashed (signal {})", WTERMSIG(status))
                             : fmt::format("ended the process (exit code {})", WEXITSTATUS(status));
}

}  // namespace

/// What came back, or why nothing did.
struct Worker::Answer {
  Json result;
  std::string failure;  ///< of the child: "crashed (signal 11)"
  bool late = false;    ///< it was killed for not answering in time
};

Worker::Worker(StartChild start, WorkerOptions options)
    : start_(std::move(start)), options_(options) {
  const std::string failure = this->start(options_.start_seconds);
  STOF_CHECK(failure.empty(), kInternal, "tuning: the measuring process {} at its start", failure);
}

Worker::~Worker() { stop(); }

/// Returns why there is no child, where it ended by itself.
std::string Worker::start(double seconds) {
  child_ = start_();
  try {
    const Answer answer = ask(Json{{"what", "environment"}}.dump(), seconds);
    if (!answer.failure.empty()) return answer.failure;
    environment_.fields.clear();
    for (const Json& field : answer.result)
      environment_.fields.push_back({field.at(0).get<std::string>(), field.at(1).get<std::string>(),
                                     field.at(2).get<bool>()});
  } catch (...) {
    stop();  // a constructor that throws has no destructor to do it
    throw;
  }
  return "";
}

/// How the child ended: killed where it has not.
int Worker::stop() {
  if (child_.pid < 0) return 0;
  ::close(child_.descriptor);
  ::kill(child_.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child_.pid, &status, 0) < 0 && errno == EINTR) continue;
  child_ = {};
  return status;
}

/// Starts a child where there is none; where it dies of the request, says how and leaves none.
Worker::Answer Worker::ask(const std::string& request, double seconds) {
  const auto begin = Clock::now();
  if (child_.pid < 0) {
    std::string failure = start(std::min(seconds, options_.start_seconds));
    if (!failure.empty()) return {Json(), std::move(failure), true};
  }
  const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
  std::string text;
  const Received got = send_message(child_.descriptor, request)
                           ? receive_message(child_.descriptor, &text, left)
                           : Received::kClosed;
  const Json json =
      got == Received::kMessage ? Json::parse(text, nullptr, /*allow_exceptions=*/false) : Json();
  if (json.contains("result") || json.contains("error")) {
    if (json.value("last", false)) {
      ++num_lost_;
      stop();
    }
    if (json.contains("error"))
      throw Error(static_cast<ErrorCode>(json.at("code").get<int>()),
                  json.at("error").get<std::string>());
    return {json.at("result"), "", false};
  }
  ++num_lost_;
  if (got == Received::kClosed) return {Json(), end_text(ended()), false};
  stop();
  if (got == Received::kLate)
    return {Json(), fmt::format("did not end within {:.3g} s", seconds), true};
  return {Json(), "answered something else", false};
}

/// After the other end was closed: the child is about to end by itself, if it is not lost.
int Worker::ended() {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    int status = 0;
    const pid_t ended = ::waitpid(child_.pid, &status, WNOHANG);
    if (ended == child_.pid) {
      ::close(child_.descriptor);
      child_ = {};
      return status;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return stop();
}

fusion::Scheme Worker::untuned_scheme() {
  const Answer answer = ask(Json{{"what", "untuned scheme"}}.dump(), options_.start_seconds);
  STOF_CHECK(answer.failure.empty(), kInternal,
             "tuning: the measuring process {} when asked for the untuned scheme", answer.failure);
  return fusion::Scheme::from_text(answer.result.get<std::string>());
}

std::vector<Candidate> Worker::candidates(Range range) {
  const Json request = {{"what", "candidates"}, {"range", {range.first, range.last}}};
  const Answer answer = ask(request.dump(), options_.start_seconds);
  STOF_CHECK(answer.failure.empty(), kInternal,
             "tuning: the measuring process {} when asked for candidates of {}", answer.failure,
             to_text({range}));
  std::vector<Candidate> list;
  for (const Json& entry : answer.result)
    list.push_back({fusion::Choice::from_text(entry.at("choice").get<std::string>()),
                    entry.at("predicted_us").get<double>(), entry.at("library").get<bool>()});
  return list;
}

Measurement Worker::measure(Range range, const fusion::Choice& choice,
                            const fusion::Choice* incumbent, double incumbent_us, double seconds) {
  const Json request = {{"what", "measure"},
                        {"range", {range.first, range.last}},
                        {"choice", choice.text()},
                        {"incumbent", incumbent != nullptr ? incumbent->text() : ""},
                        {"incumbent_us", incumbent_us},
                        {"seconds", seconds}};
  const double limit = seconds + options_.grace_seconds;
  const Answer answer = ask(request.dump(), std::min(limit, options_.candidate_seconds));
  // Whether it is endless is not known of one that had less time than others.
  if (answer.late && limit < options_.candidate_seconds) return Measurement::time_was_up();
  if (!answer.failure.empty()) return {0, answer.failure};
  return read_measurement(answer.result);
}

std::vector<Measurement> Worker::measure_end_to_end(const std::vector<TunedPlan>& plans,
                                                    double seconds) {
  Json request = {{"what", "end to end"}, {"seconds", seconds}, {"plans", Json::array()}};
  for (const TunedPlan& plan : plans) {
    Json entry = {{"partition", Json::array()}, {"choices", Json::array()}};
    for (const Range& range : plan.partition)
      entry["partition"].push_back({range.first, range.last});
    for (const fusion::Choice& choice : plan.choices) entry["choices"].push_back(choice.text());
    request["plans"].push_back(std::move(entry));
  }
  const double limit = seconds + options_.grace_seconds;
  const Answer answer = ask(request.dump(), std::min(limit, options_.end_to_end_seconds));
  std::vector<Measurement> list;
  if (answer.late && limit < options_.end_to_end_seconds) {
    list.assign(plans.size(), Measurement::time_was_up());
    return list;
  }
  if (!answer.failure.empty()) {
    list.assign(plans.size(), {0, answer.failure});
    return list;
  }
  for (const Json& entry : answer.result) list.push_back(read_measurement(entry));
  return list;
}

}  // namespace stof::tune
