#pragma once
// Files: read-only memory maps, whole-file reads with a size limit, and writes that are all or
// nothing.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stof {

/// A read-only map of a whole regular file. Throws NotFound, Io, or InvalidArgument (a folder, pipe
/// or device) naming the path.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Throws NotFound, Io, or Corrupt when the file is larger than max_bytes.
std::string read_text_file(const std::string& path, std::uint64_t max_bytes);

bool file_exists(const std::string& path);
bool is_folder(const std::string& path);

/// Writes to a temporary name beside `path`, then commit() syncs and renames. Destroying it
/// without commit() removes the temporary: a reader sees the old file or the new one, never a part.
/// A symbolic link stays: the file it leads to is replaced, and keeps its permissions.
class AtomicFile {
 public:
  /// Throws Io naming the path and the system's reason, or InvalidArgument where path is a folder,
  /// pipe or device.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::string path_, target_, temporary_;
  int descriptor_ = -1;
  int slot_ = -1;  ///< in the list that remove_temporary_files() walks
};

/// Removes the temporary names of every AtomicFile that was not committed yet. Async-signal-safe,
/// for handlers that end the process; the files themselves can't be used afterwards.
void remove_temporary_files() noexcept;

/// AtomicFile in one call.
void write_file(const std::string& path, std::string_view content);

}  // namespace stof
