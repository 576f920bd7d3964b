#include "tune/database.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "stof/error.h"

namespace stof::tune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kKey = "0123456789abcdef0123456789abcdef";
const std::string kOther = "fedcba9876543210fedcba9876543210";

Environment environment() {
  return {{{"device", "cuda", true},
           {"gpu", "NVIDIA H200", true},
           {"sms", "132", true},
           {"driver", "13.0", true},
           {"templates", "1", true},
           {"nvrtc", "13.0", false}}};
}

Environment with(const std::string& name, const std::string& value) {
  Environment changed = environment();
  for (EnvironmentField& field : changed.fields)
    if (field.name == name) field.value = value;
  return changed;
}

Record segment_record(const std::string& key = kKey) {
  Record record;
  record.key = key;
  record.what = "gemm: bias, \"gelu_erf\"";
  record.environment = environment();
  record.microseconds = 12.25;
  record.untuned_microseconds = 14;
  record.choice = {"gemm_sm90", {{"tile_m", 128}, {"stages", 4}}};
  record.measured[record.choice] = {12.25, ""};
  record.measured[{"cublaslt", {}}] = {14, ""};
  record.measured[{"gemm_sm90", {{"tile_m", 256}}}] = {0, "crashed (signal 11)"};
  return record;
}

Record scheme_record() {
  Record record;
  record.kind = RecordKind::kScheme;
  record.key = kOther;
  record.what = "bert, 14 operators a layer";
  record.environment = environment();
  record.microseconds = 1400;
  record.untuned_microseconds = 1500.5;
  record.scheme = "14:34e8";
  record.rows = 4096;
  record.mask = "bigbird()";
  record.batch = batch_key(mask::parse("bigbird()"), {0, 4096});
  record.choices["3-5"] = {"row", {{"rows", 4}}};
  record.untuned_scheme = "14:0000";
  record.seconds = 12.5;
  record.curve = {{0.5, 1500.5}, {3, 1400}};
  return record;
}

class TuningDatabase : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "stof_tuning_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// What `body` writes to standard error.
  template <class Body>
  static std::string warnings(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }

  std::string folder_;
};

TEST_F(TuningDatabase, GivesBackWhatWasStored) {
  const Database database(folder_);
  EXPECT_FALSE(database.find(RecordKind::kSegment, kKey, environment()).has_value());
  for (const Record& record : {segment_record(), scheme_record()}) {
    database.store(record);
    const auto found = Database(folder_).find(record.kind, record.key, environment());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->record, record);
    EXPECT_FALSE(found->soft.has_value());
  }
  EXPECT_THAT(database.records(), SizeIs(2));
  // A decision is readable, and by content.
  const std::string text = read_text_file(folder_ + "/" + segment_record().file_name(), 1 << 20);
  EXPECT_THAT(text, AllOf(HasSubstr("\"family\": \"gemm_sm90\""), HasSubstr("\"tile_m\": 128")));
  EXPECT_EQ(database.clear(), 2);
  EXPECT_THAT(database.list(), IsEmpty());
}

TEST_F(TuningDatabase, IgnoresOtherEnvironmentsNamingTheField) {
  const Database database(folder_);
  database.store(segment_record());
  database.store(scheme_record());
  for (const auto& [field, value] : {std::pair("gpu", "NVIDIA A100"), std::pair("sms", "108"),
                                     std::pair("driver", "12.8"), std::pair("templates", "2")}) {
    const std::string text = warnings([&, name = field, other = value] {
      EXPECT_FALSE(database.find(RecordKind::kSegment, kKey, with(name, other)).has_value());
    });
    EXPECT_THAT(text, HasSubstr(std::string(field) + ": expected " + value)) << field;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
  const auto soft = database.find(RecordKind::kSegment, kKey, with("nvrtc", "13.1"));
  ASSERT_TRUE(soft.has_value());
  EXPECT_EQ(soft->soft->text(), "nvrtc: expected 13.1, got 13.0");
  // The rest still counts, and each machine has a record of its own.
  Record mine = segment_record();
  mine.environment = with("gpu", "NVIDIA A100");
  mine.choice.family = "cublaslt";
  database.store(mine);
  EXPECT_EQ(database.find(RecordKind::kSegment, kKey, mine.environment)->record, mine);
  EXPECT_EQ(database.find(RecordKind::kSegment, kKey, environment())->record, segment_record());
  EXPECT_TRUE(database.find(RecordKind::kScheme, kOther, environment()).has_value());
}

TEST_F(TuningDatabase, KeepsTheFasterOfTwoAndAllThatWasMeasured) {
  const Database database(folder_);
  database.store(segment_record());
  Record slower = segment_record();
  slower.microseconds = 13;
  slower.choice = {"cublaslt", {}};
  slower.measured = {{{"row", {}}, {20, ""}}};
  database.store(slower);
  Record merged = database.find(RecordKind::kSegment, kKey, environment())->record;
  EXPECT_EQ(merged.choice.family, "gemm_sm90");
  EXPECT_THAT(merged.measured, SizeIs(4));
  Record newer = slower;
  newer.microseconds = 12.3;  // the same within the hysteresis: the newer one
  database.store(newer);
  EXPECT_EQ(database.find(RecordKind::kSegment, kKey, environment())->record.choice.family,
            "cublaslt");
}

TEST_F(TuningDatabase, LosesOnlyTheRecordInWhichAByteIsFlipped) {
  const Database database(folder_);
  database.store(segment_record());
  database.store(scheme_record());
  const std::string path = folder_ + "/" + segment_record().file_name();
  const std::string good = read_text_file(path, 1 << 20);
  set_log_level(LogLevel::kOff);
  std::size_t lost = 0;
  // A record of each kind has every field there is.
  const std::string other = scheme_record().to_json(true);
  for (std::size_t i = 0; i < other.size(); ++i) {
    std::string bad = other;
    bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ 0x01u);
    try {
      EXPECT_EQ(Record::from_json(bad, "r"), scheme_record()) << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << i;
    }
  }
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const unsigned flip : {0x01u, 0x20u, 0x80u}) {
      std::string bad = good;
      bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ flip);
      // White space may change; anything else is noticed.
      try {
        EXPECT_EQ(Record::from_json(bad, "r"), segment_record()) << i;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << i;
        ++lost;
      }
      if (i % 61 != 0) continue;  // the same through the file
      std::ofstream(path, std::ios::binary) << bad;
      const auto found = database.find(RecordKind::kSegment, kKey, environment());
      EXPECT_TRUE(!found || found->record == segment_record());
      EXPECT_TRUE(database.find(RecordKind::kScheme, kOther, environment()).has_value());
    }
  set_log_level(LogLevel::kWarn);
  EXPECT_GT(lost, good.size());
  std::ofstream(path, std::ios::binary) << good.substr(0, good.size() / 2);
  const std::string text = warnings(
      [&] { EXPECT_FALSE(database.find(RecordKind::kSegment, kKey, environment()).has_value()); });
  EXPECT_THAT(text, HasSubstr(path));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const auto entries = database.list();
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_NE(entries[0].record.has_value(), entries[1].record.has_value());
  database.store(segment_record());  // replaced
  EXPECT_TRUE(database.find(RecordKind::kSegment, kKey, environment()).has_value());
}

TEST_F(TuningDatabase, TakesTheNearestNumberOfRows) {
  const Database database(folder_);
  for (const std::int64_t rows : {128, 4096, 32768}) {
    Record record = scheme_record();
    record.rows = rows;
    database.store(record);
  }
  for (const auto& [wanted, expected] :
       {std::pair(32, 128), std::pair(700, 128), std::pair(800, 4096), std::pair(1 << 17, 32768)})
    EXPECT_EQ(database.find(RecordKind::kScheme, kOther, environment(), wanted)->record.rows,
              expected);
  // Far outside of what was tuned, the rules know better.
  for (const std::int64_t far : {1, 31, (1 << 17) + 1, 1 << 20})
    EXPECT_FALSE(database.find(RecordKind::kScheme, kOther, environment(), far).has_value()) << far;
}

TEST_F(TuningDatabase, KeepsARecordAMaskAndItsLengths) {
  const Database database(folder_);
  const std::string one = scheme_record().batch,
                    eight = batch_key(mask::parse("bigbird()"), {0, 2048, 4096}),
                    causal = batch_key(mask::parse("causal"), {0, 4096});
  EXPECT_NE(one, eight);
  EXPECT_NE(one, causal);
  // By content: however it is written.
  EXPECT_EQ(causal, batch_key(mask::parse(" causal "), {0, 4096}));
  for (const std::string& batch : {one, eight, causal}) {
    Record record = scheme_record();
    record.batch = batch;
    database.store(record);
  }
  EXPECT_THAT(database.records(), SizeIs(3));
  const auto found = [&](const std::string& batch, std::int64_t rows) {
    return database.find(RecordKind::kScheme, kOther, environment(), rows, batch)->record.batch;
  };
  for (const std::string& batch : {one, eight, causal}) EXPECT_EQ(found(batch, 4096), batch);
  // Of another mask, better than none; and the number of rows counts for more.
  EXPECT_FALSE(found("0123456789abcdef", 4096).empty());
  Record shorter = scheme_record();
  shorter.rows = 128;
  shorter.batch = causal;
  database.store(shorter);
  EXPECT_EQ(found(one, 130), causal);
}

TEST_F(TuningDatabase, PassesOverRecordsOfAnotherFormatAndReplacesThem) {
  // As stof wrote them before, and as a newer one might.
  const std::string of_scheme = folder_ + "/" + kOther + "-4096-" + std::string(16, 'a') + ".json";
  const std::string old_body =
      R"({"choices":{},"curve":[],"environment":{},"format":1,"key":")" + kOther +
      R"(","kind":"scheme","mask":"all","microseconds":1.0,"rows":4096,"scheme":"14:2e20",)"
      R"("seconds":1.0,"untuned_microseconds":1.0,"untuned_scheme":"14:2e20","what":"a model"})";
  std::filesystem::create_directories(folder_);
  std::ofstream(of_scheme) << R"({"checksum":")" << fingerprint_of(old_body).hex()
                           << R"(","record":)" << old_body << "}";
  const Database database(folder_);
  ASSERT_THAT(database.list(), SizeIs(1));
  EXPECT_TRUE(database.list().front().outdated);
  EXPECT_THAT(database.list().front().problem,
              HasSubstr("format: expected 2, got 1, of another stof"));
  const std::string text = warnings([&] {
    EXPECT_FALSE(database.find(RecordKind::kScheme, kOther, environment(), 4096).has_value());
  });
  EXPECT_THAT(text, HasSubstr("format: expected 2, got 1"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  database.store(scheme_record());
  EXPECT_THAT(database.list(), SizeIs(1));
  EXPECT_TRUE(database.find(RecordKind::kScheme, kOther, environment(), 4096).has_value());
}

TEST_F(TuningDatabase, RefusesARecordUnderAnotherName) {
  const Database database(folder_);
  database.store(segment_record());
  const std::string path = folder_ + "/" + segment_record().file_name();
  std::filesystem::rename(path, folder_ + "/" + segment_record(kOther).file_name());
  EXPECT_THAT(database.list().front().problem, HasSubstr("under another name"));
}

TEST(TuningArchive, LosesOneRecordToAFlippedByte) {
  const std::vector<Record> records = {segment_record(), scheme_record(), segment_record(kOther)};
  const std::string good = make_archive(records);
  EXPECT_EQ(parse_archive(good, "a").records, records);
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const unsigned flip : {0x01u, 0x80u}) {
      std::string bad = good;
      bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ flip);
      const ParsedArchive parsed = parse_archive(bad, "a");
      EXPECT_GE(parsed.records.size() + 1, records.size()) << i;
      for (const Record& record : parsed.records)
        EXPECT_NE(std::find(records.begin(), records.end(), record), records.end()) << i;
      if (parsed.records.size() < records.size()) {
        EXPECT_THAT(parsed.problems, ::testing::Not(IsEmpty()));
      }
    }
  EXPECT_THROW(parse_archive("something else", "b"), Error);
}

TEST(TuningArchive, ShipsRecordsThatGiveWayToTheUsers) {
  const std::string folder = ::testing::TempDir() + "stof_shipped";
  std::filesystem::remove_all(folder);
  const Database database(folder, {make_archive({segment_record()})});
  // Another driver than the one it was measured under.
  const auto found = database.find(RecordKind::kSegment, kKey, with("driver", "13.2"));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->shipped);
  EXPECT_EQ(found->soft->field, "driver");
  EXPECT_FALSE(database.find(RecordKind::kSegment, kKey, with("sms", "108")).has_value());
  Record mine = segment_record();
  mine.choice.family = "cublaslt";
  database.store(mine);
  EXPECT_FALSE(database.find(RecordKind::kSegment, kKey, environment())->shipped);
  // Of schemes the nearest, whosever it is.
  const Database both(folder, {make_archive({scheme_record()})});
  Record few = scheme_record();
  few.rows = 128;
  both.store(few);
  EXPECT_TRUE(both.find(RecordKind::kScheme, kOther, environment(), 4000)->shipped);
  EXPECT_FALSE(both.find(RecordKind::kScheme, kOther, environment(), 130)->shipped);
  std::filesystem::remove_all(folder);
}

/// Stores `count` segments of its own and one that everybody stores, reading between.
void store_many(const Database& database, int writer, int count) {
  for (int i = 0; i < count; ++i) {
    Record shared = segment_record();
    shared.microseconds = 12 + (writer + i) % 3;
    shared.measured = {{{"row", {{"writer", writer}, {"i", i}}}, {20, ""}}};
    database.store(shared);
    const auto found = database.find(RecordKind::kSegment, kKey, environment());
    if (!found || found->record.choice != shared.choice) ::_exit(1);
  }
}

TEST_F(TuningDatabase, LosesNothingToSixteenProcesses) {
  constexpr int kProcesses = 16, kCount = 6;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kProcesses; ++writer) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      store_many(Database(folder_), writer, kCount);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto found = Database(folder_).find(RecordKind::kSegment, kKey, environment());
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->record.measured, SizeIs(kProcesses * kCount));
  EXPECT_EQ(found->record.microseconds, 12);
}

TEST_F(TuningDatabase, LosesNothingToEightThreads) {
  const Database database(folder_);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int writer = 0; writer < 8; ++writer)
    threads.emplace_back([&database, writer] { store_many(database, writer, 6); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(database.find(RecordKind::kSegment, kKey, environment())->record.measured,
              SizeIs(8 * 6));
}

TEST(TuningEnvironment, OfThisProcessorIsStable) {
  const Environment here = cpu_environment(2);
  EXPECT_EQ(here.value("device"), "cpu");
  EXPECT_EQ(here.value("threads"), "2");
  EXPECT_EQ(here.fingerprint(), cpu_environment(2).fingerprint());
  EXPECT_FALSE(mismatch(here, cpu_environment(2)).has_value());
  EXPECT_EQ(mismatch(here, cpu_environment(3))->text(), "threads: expected 2, got 3");
  EXPECT_FALSE(mismatch(here, cpu_environment(3))->hard);
}

TEST(TuningEnvironment, TellsLibrariesOfOneNameApart) {
  // This program has an identity where the linker writes one; its bytes tell.
  const std::string text = read_text_file("/proc/self/exe", 1u << 30);
  const std::string mark("\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0", 16);
  const std::size_t at = text.find(mark);
  std::string expected;
  if (at != std::string::npos)
    for (std::size_t i = 0; i < 20; ++i)
      expected += fmt::format("{:02x}", static_cast<unsigned char>(text[at + mark.size() + i]));
  EXPECT_EQ(library_build("/proc/self/exe"), expected);
  EXPECT_EQ(library_build("/nowhere/libnone.so"), "");
  EXPECT_EQ(library_build("/proc/self/cmdline"), "");
}

}  // namespace
}  // namespace stof::tune
