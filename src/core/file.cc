#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace stof {
namespace {

std::string system_reason() { return std::strerror(errno); }

[[noreturn]] void throw_open_error(const std::string& path) {
  if (errno == ENOENT || errno == ENOTDIR)
    throw_error(ErrorCode::kNotFound, "{}: no such file; check the path", path);
  throw_error(ErrorCode::kIo, "{}: cannot be opened: {}", path, system_reason());
}

/// What something that is no regular file is.
const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) || S_ISSOCK(mode) ? "a pipe" : "a device";
}

/// Closes on scope exit.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Descriptor open_regular(const std::string& path, std::size_t* size) {
  // O_NONBLOCK: opening a named pipe would wait for a writer, perhaps for ever.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) throw_open_error(path);
  struct stat info {};
  STOF_CHECK(::fstat(file.fd, &info) == 0, kIo, "{}: cannot be examined: {}", path,
             system_reason());
  STOF_CHECK(S_ISREG(info.st_mode), kInvalidArgument, "{}: expected a file, got {}", path,
             kind_name(info.st_mode));
  *size = static_cast<std::size_t>(info.st_size);
  return Descriptor{std::exchange(file.fd, -1)};
}

// Temporary names for remove_temporary_files(). A signal handler may not allocate, lock or read
// memory that somebody frees, so the names live in fixed slots. When all are taken (more files open
// for writing at once than that, or a longer path) a file goes without.
struct TemporaryName {
  std::atomic<bool> taken{false};
  std::atomic<bool> ready{false};  ///< path is complete and the file may exist
  char path[PATH_MAX] = {};
};
std::array<TemporaryName, 16> temporary_names;

int register_temporary(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (std::size_t i = 0; i < temporary_names.size(); ++i) {
    TemporaryName& name = temporary_names[i];
    if (name.taken.exchange(true)) continue;
    std::memcpy(name.path, path.c_str(), path.size() + 1);
    name.ready = true;
    return static_cast<int>(i);
  }
  return -1;
}

/// A name beside `path` that nobody else uses, cut where path's own is as long as names may be.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::string suffix = fmt::format(".tmp.{}.{}", ::getpid(), counter++);
  const std::size_t name_begin = path.rfind('/') + 1;  // npos + 1 is 0
  const std::size_t name_end = std::min(path.size(), name_begin + NAME_MAX - suffix.size());
  return path.substr(0, name_end) + suffix;
}

void forget_temporary(int slot) {
  if (slot < 0) return;
  TemporaryName& name = temporary_names[static_cast<std::size_t>(slot)];
  name.ready = false;
  name.taken = false;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file = open_regular(path, &size_);
  if (size_ == 0) return;  // mmap refuses empty maps
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  STOF_CHECK(map != MAP_FAILED, kIo, "{}: cannot be mapped: {}", path, system_reason());
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text_file(const std::string& path, std::uint64_t max_bytes) {
  std::size_t size = 0;
  const Descriptor file = open_regular(path, &size);
  STOF_CHECK(size <= max_bytes, kCorrupt, "{}: expected at most {} bytes, got {}", path, max_bytes,
             size);
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    STOF_CHECK(got >= 0, kIo, "{}: read failed: {}", path, system_reason());
    if (got == 0) break;  // the file shrank meanwhile
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  // The file behind a link is replaced, not the link.
  if (char* const resolved = ::realpath(path.c_str(), nullptr)) {
    target_ = resolved;
    std::free(resolved);
  }
  // Renaming over a device or pipe would put a file in its place: with /dev/null, for everybody.
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  STOF_CHECK(!exists || S_ISREG(info.st_mode), kInvalidArgument,
             "{}: expected the name of a file to write, got {}", path, kind_name(info.st_mode));
  temporary_ = temporary_name(target_);
  slot_ = register_temporary(temporary_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) {
    // A private file stays private. Where this fails the new file has the permissions of any other.
    if (exists) static_cast<void>(::fchmod(descriptor_, info.st_mode & 07777) == 0);
    return;
  }
  const std::string reason = system_reason();
  forget_temporary(slot_);
  throw_error(ErrorCode::kIo, "{}: cannot be written: {}", path, reason);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  forget_temporary(slot_);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(descriptor_, next, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    STOF_CHECK(wrote > 0, kIo, "{}: write failed: {}; the old file, if any, is untouched", path_,
               system_reason());
    next += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
}

void AtomicFile::commit() {
  STOF_ASSERT(descriptor_ >= 0);
  const bool synced = ::fsync(descriptor_) == 0;
  STOF_CHECK(synced, kIo, "{}: write failed: {}; the old file, if any, is untouched", path_,
             system_reason());
  STOF_CHECK(::rename(temporary_.c_str(), target_.c_str()) == 0, kIo, "{}: cannot be replaced: {}",
             path_, system_reason());
  forget_temporary(std::exchange(slot_, -1));
  ::close(std::exchange(descriptor_, -1));
}

void remove_temporary_files() noexcept {
  for (const TemporaryName& name : temporary_names) {
    if (name.ready) ::unlink(name.path);
  }
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace stof
