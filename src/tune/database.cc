#include "tune/database.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"
#include "core/log.h"

namespace stof::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxRecordBytes = 4u << 20;
constexpr const char* kExtension = ".json";

/// Nothing, with the reason, for what is no intact record under its own name.
DatabaseEntry read_entry(const std::string& path) {
  DatabaseEntry entry{path, std::nullopt, ""};
  try {
    Record record = Record::from_json(read_text_file(path, kMaxRecordBytes), path);
    if (fs::path(path).filename() == record.file_name())
      entry.record = std::move(record);
    else
      entry.problem = path + ": the record of " + record.file_name() + " under another name";
  } catch (const Error& error) {
    entry.problem = error.what();
    entry.outdated = error.code() == ErrorCode::kUnsupported;
  }
  return entry;
}

/// Held while a record is read, merged and written. Where a file system has no locks two writers
/// may lose one of two results, never a whole file.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ >= 0)
      while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// How many times more or fewer rows the record was tuned for, as a logarithm.
double distance(const Record& record, std::int64_t rows) {
  if (record.rows <= 0 || rows <= 0) return 0;
  return std::abs(std::log(static_cast<double>(record.rows) / static_cast<double>(rows)));
}

/// Beyond the tuned numbers of rows a scheme is used for so many times more or fewer: tiles and
/// kernels that are right for 8 rows are many times too slow for 4096, which the rules know.
constexpr double kMaxRowsRatio = 4;

/// Picks the record that fits best, remembering why one did not fit.
struct Picker {
  std::int64_t rows;
  const std::string& batch;
  std::optional<FoundRecord> found;
  std::optional<Mismatch> refused;
  std::int64_t fewest = 0, most = 0;  ///< rows of all that fit

  /// Those offered first win among equals.
  void offer(const Record& record, const Environment& wanted, bool shipped) {
    auto differs = mismatch(wanted, record.environment);
    if (differs && differs->hard) {
      if (!refused) refused = std::move(differs);
      return;
    }
    fewest = found ? std::min(fewest, record.rows) : record.rows;
    most = std::max(most, record.rows);
    FoundRecord next{record, std::move(differs), shipped};
    const auto rank = [&](const FoundRecord& f) {
      return std::tuple(distance(f.record, rows), f.record.batch != batch, f.shipped,
                        f.soft.has_value());
    };
    if (!found || rank(next) < rank(*found)) found = std::move(next);
  }

  /// Whether what was found says nothing of so many rows.
  bool too_far() const {
    const bool between = fewest <= rows && rows <= most;
    return found && !between && distance(found->record, rows) > std::log(kMaxRowsRatio);
  }
};

}  // namespace

Database::Database(std::string folder, const std::vector<std::string>& shipped)
    : folder_(std::move(folder)) {
  for (const std::string& archive : shipped) {
    ParsedArchive parsed = parse_archive(archive, "records of the library");
    for (const std::string& problem : parsed.problems) log_warn("{}; left out", problem);
    for (Record& record : parsed.records) shipped_.push_back(std::move(record));
  }
}

Database Database::standard() { return Database(cache_folder() + "/tuning", shipped_archives()); }

/// Files of records of that key, whatever else they are of.
std::vector<std::string> Database::paths_of(const std::string& key) const {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(key + "-") && file.path().extension() == kExtension)
      paths.push_back(file.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Those of the folder, without the library's.
std::vector<Record> Database::read(RecordKind kind, const std::string& key) const {
  std::vector<Record> records;
  if (read_) {
    for (const Record& record : *read_)
      if (record.kind == kind && record.key == key) records.push_back(record);
    return records;
  }
  for (const std::string& path : paths_of(key)) {
    DatabaseEntry entry = read_entry(path);
    if (!entry.record)
      log_warn("{}; the record is ignored, tuning again replaces it", entry.problem);
    else if (entry.record->kind == kind)
      records.push_back(std::move(*entry.record));
  }
  return records;
}

Database Database::snapshot(RecordKind kind, const std::string& key) const {
  Database copy(folder_);
  copy.read_ = read(kind, key);
  for (const Record& record : shipped_)
    if (record.kind == kind && record.key == key) copy.shipped_.push_back(record);
  return copy;
}

std::optional<FoundRecord> Database::find(RecordKind kind, const std::string& key,
                                          const Environment& environment, std::int64_t rows,
                                          const std::string& batch, bool warn) const {
  Picker picker{rows, batch, std::nullopt, std::nullopt, 0, 0};
  for (const Record& record : read(kind, key)) picker.offer(record, environment, false);
  for (const Record& record : shipped_)
    if (record.kind == kind && record.key == key)
      picker.offer(record, for_shipped_records(environment), true);
  if (picker.too_far()) {
    log_info("tuning record {} is for {} rows, too far from {}", key, picker.found->record.rows,
             rows);
    return std::nullopt;
  }
  if (warn && !picker.found && picker.refused)
    log_warn("tuning record {} is ignored: {}; stof tune makes one for this machine", key,
             picker.refused->text());
  return std::move(picker.found);
}

void Database::store(const Record& record) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  const FolderLock lock(folder_);
  const std::string path = folder_ + "/" + record.file_name();
  Record merged = record;
  if (file_exists(path)) {
    const DatabaseEntry entry = read_entry(path);
    // A record that differs in a soft field was measured under other conditions.
    if (entry.record && !mismatch(record.environment, entry.record->environment))
      merged = merge(*entry.record, record);
  }
  write_file(path, merged.to_json(true) + "\n");
  if (record.kind == RecordKind::kScheme)  // segments' names are the same in all formats
    for (const std::string& other : paths_of(record.key))
      if (other != path && read_entry(other).outdated) fs::remove(other, failed);
}

bool Database::empty() const {
  if (!shipped_.empty()) return false;
  if (read_) return read_->empty();
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored))
    if (file.path().extension() == kExtension) return false;
  return true;
}

std::vector<DatabaseEntry> Database::list() const {
  std::vector<DatabaseEntry> entries;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored))
    if (file.path().extension() == kExtension) entries.push_back(read_entry(file.path().string()));
  std::sort(entries.begin(), entries.end(),
            [](const DatabaseEntry& a, const DatabaseEntry& b) { return a.path < b.path; });
  return entries;
}

std::vector<Record> Database::records() const {
  std::vector<Record> records;
  for (DatabaseEntry& entry : list())
    if (entry.record) records.push_back(std::move(*entry.record));
  return records;
}

int Database::clear() const {
  int removed = 0;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored))
    if (file.path().extension() == kExtension) removed += fs::remove(file.path(), ignored);
  return removed;
}

}  // namespace stof::tune
