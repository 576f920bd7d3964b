// Structs that grow, and messages that belong to a thread.

#include "capi/sized.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>

#include "stof/models.h"

namespace stof::capi {
namespace {

/// A struct as it was first released, and as it is now.
struct First {
  std::uint32_t struct_size;
  std::int32_t number;
};
struct Second {
  std::uint32_t struct_size;
  std::int32_t number;
  std::int64_t newer;
};

Second read(const void* given) {
  return read_sized(static_cast<const Second*>(given), "options", sizeof(First));
}

std::string error_of(const void* given) {
  try {
    read(given);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SizedStruct, GivesFieldsThatTheCallerDoesNotKnowTheirDefault) {
  // What lies behind the caller's struct is not read.
  struct {
    First given{sizeof(First), 7};
    std::int64_t behind = 9;
  } memory;
  const Second read_first = read(&memory.given);
  EXPECT_EQ(read_first.number, 7);
  EXPECT_EQ(read_first.newer, 0);
  const Second second{sizeof(Second), 7, 8};
  EXPECT_EQ(read(&second).newer, 8);
}

TEST(SizedStruct, RefusesSizesThatNoVersionHas) {
  Second given{sizeof(First) - 1, 7, 8};
  EXPECT_EQ(error_of(&given),
            "options.struct_size: expected 16, got 7; set it to sizeof the struct");
  given.struct_size = sizeof(Second) + 1;
  EXPECT_EQ(error_of(&given),
            "options.struct_size: expected at most 16, got 17; the caller was compiled for a newer "
            "stof than this library: update the library");
  EXPECT_EQ(error_of(nullptr), "options: expected a pointer, got null");
}

std::string error_of(const SizedArray<Second>& array, std::int64_t i) {
  try {
    array.read(i);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SizedArray, StepsByTheStructThatTheCallerKnows) {
  First older[3] = {{sizeof(First), 1}, {sizeof(First), 2}, {sizeof(First), 3}};
  const SizedArray<Second> array(reinterpret_cast<const Second*>(older), "tables", sizeof(First));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(array.read(i).number, i + 1);
    EXPECT_EQ(array.read(i).newer, 0);
  }
  older[2].struct_size = sizeof(First) + 1;
  EXPECT_EQ(error_of(array, 2), "tables[2].struct_size: expected 8 as in tables[0], got 9");
  const Second current[2] = {{sizeof(Second), 1, 10}, {sizeof(Second), 2, 20}};
  EXPECT_EQ(SizedArray<Second>(current, "tables", sizeof(First)).read(1).newer, 20);
}

TEST(SizedArray, RefusesAStructThatIsLongerThanTheLibrarys) {
  struct Longer {
    Second known;
    std::int64_t newest;
  };
  const Longer newer[2] = {{{sizeof(Longer), 1, 10}, 100}, {{sizeof(Longer), 2, 20}, 200}};
  const SizedArray<Second> array(&newer[0].known, "tables", sizeof(First));
  EXPECT_EQ(error_of(array, 0),
            "tables[0].struct_size: expected at most 16, got 24; the caller was compiled for a "
            "newer stof than this library: update the library");
}

// Others rely on these layouts: the sizes only grow, and none has bytes that no field names.
TEST(SizedStruct, HasTheLayoutThatWasReleased) {
  EXPECT_EQ(sizeof(stof_tensor), 40u);
  EXPECT_EQ(sizeof(stof_score_shape), 40u);
  EXPECT_EQ(sizeof(stof_draw_options), 32u);
  EXPECT_EQ(sizeof(stof_score_table), 32u);
  EXPECT_EQ(sizeof(stof_attention_problem), 144u);
  EXPECT_EQ(offsetof(stof_attention_problem, score_mod), 120u);  // as it was first released
  EXPECT_EQ(offsetof(stof_attention_problem, alignment), 64u);
  EXPECT_EQ(offsetof(stof_attention_problem, position_buckets), 96u);
  EXPECT_EQ(sizeof(stof_target), 24u);
  EXPECT_EQ(sizeof(stof_attention_tensors), 96u);
  EXPECT_EQ(offsetof(stof_attention_tensors, num_score_tables), 80u);  // likewise
  EXPECT_EQ(sizeof(stof_run_options), 16u);
  EXPECT_EQ(sizeof(stof_gpu_model), 16u);
  EXPECT_EQ(sizeof(stof_load_options), 24u);
  EXPECT_EQ(sizeof(stof_encode_options), 64u);
  EXPECT_EQ(sizeof(stof_generate_options), 104u);
  EXPECT_EQ(sizeof(stof_chat_message), 24u);
  EXPECT_EQ(sizeof(stof_classify_options), 56u);
}

TEST(LastError, BelongsToItsThread) {
  stof_mask* mask = nullptr;
  ASSERT_EQ(stof_mask_parse("nonsense", nullptr, &mask), STOF_INVALID_ARGUMENT);
  const std::string mine = stof_last_error();
  std::string before, theirs;
  std::thread([&] {
    before = stof_last_error();
    stof_mask* other = nullptr;
    stof_mask_parse("rubbish", nullptr, &other);
    theirs = stof_last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_NE(theirs.find("rubbish"), std::string::npos) << theirs;
  EXPECT_NE(mine.find("nonsense"), std::string::npos) << mine;
  EXPECT_EQ(stof_last_error(), mine);
}

TEST(LastError, StaysWhereCallsSucceed) {
  stof_mask* mask = nullptr;
  ASSERT_EQ(stof_mask_parse("nonsense", nullptr, &mask), STOF_INVALID_ARGUMENT);
  const std::string message = stof_last_error();
  ASSERT_EQ(stof_mask_parse("causal", nullptr, &mask), STOF_OK);
  EXPECT_EQ(stof_last_error(), message);
  stof_mask_release(mask);
}

TEST(CancelFlag, EndsCallsOfItsThreadAlone) {
  stof_mask* mask = nullptr;
  ASSERT_EQ(stof_mask_parse("causal", nullptr, &mask), STOF_OK);
  stof_score_shape shape{};
  shape.struct_size = sizeof shape;
  shape.batch = shape.num_heads = 1;
  shape.seq_q = shape.seq_kv = 256;
  char* text = nullptr;
  std::int32_t flag = 0;
  stof_set_cancel_flag(&flag);
  EXPECT_EQ(stof_mask_stats(mask, &shape, &text), STOF_OK);
  stof_text_release(text);
  text = nullptr;
  flag = 1;
  EXPECT_EQ(stof_mask_stats(mask, &shape, &text), STOF_CANCELLED);
  EXPECT_EQ(text, nullptr);
  EXPECT_STREQ(stof_status_name(STOF_CANCELLED), "Cancelled");
  EXPECT_NE(std::string(stof_last_error()).find("cancelled"), std::string::npos);
  std::thread([&] {
    char* other = nullptr;
    EXPECT_EQ(stof_mask_stats(mask, &shape, &other), STOF_OK);
    stof_text_release(other);
  }).join();
  stof_set_cancel_flag(nullptr);
  EXPECT_EQ(stof_mask_stats(mask, &shape, &text), STOF_OK);
  stof_text_release(text);
  stof_mask_release(mask);
}

}  // namespace
}  // namespace stof::capi
