#pragma once
// Tuning records on disk, shared by all processes of a user: a folder with one file a record, so
// that a damaged one costs nothing but itself.

#include <optional>
#include <string>
#include <vector>

#include "tune/record.h"

namespace stof::tune {

/// A file of the database as `stof cache ls` shows it.
struct DatabaseEntry {
  std::string path;
  std::optional<Record> record;
  std::string problem;    ///< why there is no record
  bool outdated = false;  ///< intact, but of another format
};

/// A record that fits this machine.
struct FoundRecord {
  Record record;
  std::optional<Mismatch> soft;  ///< in which field it differs all the same
  bool shipped = false;          ///< came with the library
};

/// Safe from several threads and processes at once.
class Database {
 public:
  /// The folder need not exist. `shipped`: archives that are read after it.
  explicit Database(std::string folder, const std::vector<std::string>& shipped = {});
  /// In the per-user cache folder ($STOF_CACHE and so on), with the records the library carries.
  static Database standard();

  /// The record of that key for this environment; of schemes the one tuned for the nearest number
  /// of rows, and of several for that number the one of the same batch_key(); none where all are
  /// for fewer rows or all for more, by more than four times. Where there are only records of other
  /// environments, one line of warning names the field that differs; a damaged one is passed over
  /// with one line.
  std::optional<FoundRecord> find(RecordKind kind, const std::string& key,
                                  const Environment& environment, std::int64_t rows = 0,
                                  const std::string& batch = "", bool warn = true) const;
  /// The records of one kind and key alone, read now: find() and empty() then look at no file.
  Database snapshot(RecordKind kind, const std::string& key) const;
  /// Merges the record into what is there, and removes what other formats held of its key. Throws
  /// Io where the folder can't be written.
  void store(const Record& record) const;

  /// Quick: without a record, neither on disk nor in the library.
  bool empty() const;
  std::vector<DatabaseEntry> list() const;
  /// All intact records.
  std::vector<Record> records() const;
  /// Removes every record; returns how many.
  int clear() const;
  const std::string& folder() const { return folder_; }

 private:
  std::vector<std::string> paths_of(const std::string& key) const;
  std::vector<Record> read(RecordKind kind, const std::string& key) const;

  std::string folder_;
  std::optional<std::vector<Record>> read_;  ///< of a snapshot
  std::vector<Record> shipped_;
};

/// Archives that are compiled into the library.
std::vector<std::string> shipped_archives();

}  // namespace stof::tune
