// stof mask: what it prints and writes, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "stof/block_mask.h"
#include "stof/npy.h"

namespace stof::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string row_of(const std::string& mask, const std::string& seq, const std::string& row) {
  const Finished finished = run_stof({"mask", "show", mask, "--seq", seq, "--row", row});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  return finished.out;
}

TEST(MaskShow, PrintsTheKeysARowSees) {
  // Case 34: windows are inclusive on both sides.
  EXPECT_EQ(row_of("causal & window(3,0)", "10", "9"), "row 9 sees 4 of 10 keys: 6..9\n");
  EXPECT_EQ(row_of("causal & window(3,0)", "10", "2"), "row 2 sees 3 of 10 keys: 0..2\n");
  EXPECT_EQ(row_of("window(4,4)", "16", "8"), "row 8 sees 9 of 16 keys: 4..12\n");
  // Case 35: a window looks both ways.
  EXPECT_EQ(row_of("window(64,64)", "300", "0"), "row 0 sees 65 of 300 keys: 0..64\n");
  EXPECT_EQ(row_of("window(64,64)", "300", "150"), "row 150 sees 129 of 300 keys: 86..214\n");
}

TEST(MaskShow, JoinsRangesAcrossTilesAndListsGaps) {
  EXPECT_EQ(row_of("all", "1000", "5"), "row 5 sees 1000 of 1000 keys: 0..999\n");
  EXPECT_EQ(row_of("none", "1000", "5"), "row 5 sees 0 of 1000 keys: nothing\n");
  EXPECT_EQ(row_of("window(1,0) | global(cols=1)", "500", "400"),
            "row 400 sees 3 of 500 keys: 0, 399, 400\n");
}

TEST(MaskShow, RowOfAVeryLongSequenceIsCheap) {
  EXPECT_EQ(row_of("causal & window(2,0)", "2147483647", "2147483646"),
            "row 2147483646 sees 3 of 2147483647 keys: 2147483644..2147483646\n");
}

TEST(MaskShow, DrawsEveryPairOfAShortSequence) {
  const Finished finished = run_stof({"mask", "show", "causal", "--seq", "4", "--json"});
  EXPECT_THAT(json::parse(finished.out).at("rows").get<std::vector<std::string>>(),
              ElementsAre("#...", "##..", "###.", "####"))
      << finished.err;
  const Finished text = run_stof({"mask", "show", "causal", "--seq", "4"});
  EXPECT_THAT(text.out, HasSubstr("\n0  #...\n1  ##..\n2  ###.\n3  ####\n"));
}

TEST(MaskShow, DrawsCellsOfALongSequence) {
  const Finished finished =
      run_stof({"mask", "show", "causal & chunked(64)", "--seq", "256", "--json"});
  const json drawing = json::parse(finished.out);
  EXPECT_EQ(drawing.at("cell"), 4);
  const auto rows = drawing.at("rows").get<std::vector<std::string>>();
  ASSERT_EQ(rows.size(), 64u);
  EXPECT_EQ(rows[17], std::string(16, '.') + "#+" + std::string(46, '.'));
}

TEST(MaskShow, AlignsUnequalLengthsAsTold) {
  const auto rows = [](const char* alignment) {
    return json::parse(run_stof({"mask", "show", "causal", "--seq", "2", "--seq-kv", "4", "--align",
                                 alignment, "--json"})
                           .out)
        .at("rows")
        .get<std::vector<std::string>>();
  };
  EXPECT_THAT(rows("top_left"), ElementsAre("#...", "##.."));
  EXPECT_THAT(rows("bottom_right"), ElementsAre("###.", "####"));
}

TEST(MaskShow, RefusesIndicesPastTheEnd) {
  EXPECT_EQ(user_error(run_stof({"mask", "show", "causal", "--seq", "16", "--row", "16"})),
            "--row: expected 0 to 15, got 16");
  EXPECT_EQ(user_error(run_stof({"mask", "show", "causal", "--seq", "16", "--head", "1"})),
            "--head: expected 0 to 0, got 1");
}

TEST(MaskSource, ShowsACaretUnderTheFault) {
  const Finished finished = run_stof({"mask", "show", "causal & windw(3,0)", "--seq", "16"});
  EXPECT_THAT(user_error(finished), HasSubstr("windw"));
  const std::size_t quoted = finished.err.find("causal & windw(3,0)\n");
  ASSERT_NE(quoted, std::string::npos) << finished.err;
  const std::size_t line_begin = finished.err.rfind('\n', quoted) + 1;
  const std::size_t caret_line = finished.err.find('\n', quoted) + 1;
  EXPECT_EQ(finished.err.find('^', caret_line) - caret_line, quoted - line_begin + 9)
      << finished.err;
}

TEST(MaskSource, NeedsALength) {
  EXPECT_THAT(user_error(run_stof({"mask", "stats", "causal"})), StartsWith("--seq: expected"));
}

TEST(MaskSource, NamesAMissingFile) {
  for (const char* name : {"missing.json", "missing.npy", "missing.safetensors", "missing.txt"})
    EXPECT_THAT(user_error(run_stof({"mask", "stats", name, "--seq", "8"})), HasSubstr(name));
}

TEST(MaskSource, NamesACorruptFile) {
  const TemporaryFolder folder;
  for (const char* name : {"bad.json", "bad.npy", "bad.safetensors"}) {
    std::ofstream(folder / name) << "this is none of these formats";
    EXPECT_THAT(user_error(run_stof({"mask", "stats", folder / name, "--seq", "8"})),
                HasSubstr(name));
  }
}

TEST(MaskStats, JsonCountsPairsAndTiles) {
  const Finished finished = run_stof({"mask", "stats", "causal", "--seq", "128", "--json"});
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("shape").at("seq_kv"), 128);
  EXPECT_EQ(document.at("stats").at("visible_pairs"), 128 * 129 / 2);
  EXPECT_EQ(document.at("alignment"), "top_left");
}

TEST(MaskStats, PrintsATableOfTileSizes) {
  const Finished finished = run_stof({"mask", "stats", "causal", "--seq", "128", "--heads", "3"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("[1, 3, 128, 128]"));
  EXPECT_THAT(finished.out, HasSubstr("24,768 pairs, 50.39 %"));
  EXPECT_THAT(finished.out, testing::ContainsRegex("64 x 64 +3 +6 +3 +75.00 %"));
}

TEST(MaskStats, TakesSequencesWhoseSquarePasses32Bits) {
  const Finished finished = run_stof({"mask", "stats", "window(1,1)", "--seq", "131072", "--json"});
  EXPECT_EQ(json::parse(finished.out).at("stats").at("visible_pairs"), 3LL * 131072 - 2);
}

TEST(MaskStats, RefusesWhatWouldNotFitInMemory) {
  EXPECT_THAT(user_error(run_stof({"mask", "stats", "random(0.5, seed=1)", "--seq", "2147483647"})),
              HasSubstr("--seq"));
}

TEST(MaskDraw, WritesBothPictures) {
  const TemporaryFolder folder;
  const Finished finished = run_stof({"mask", "draw", "causal & window(64,0)", "--seq", "512",
                                      "--out", folder / "m.png", "--tiles", folder / "t.png"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* name : {"m.png", "t.png"})
    EXPECT_THAT(read_file(folder / name), StartsWith("\x89PNG\r\n\x1a\n")) << name;
  EXPECT_THAT(folder.names(), testing::UnorderedElementsAre("m.png", "t.png"));
}

TEST(MaskDraw, RefusesUnwritablePlacesAndLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_THAT(user_error(run_stof(
                  {"mask", "draw", "causal", "--seq", "64", "--out", folder / "missing/m.png"})),
              HasSubstr("no such folder"));
  EXPECT_THAT(
      user_error(run_stof({"mask", "draw", "causal", "--seq", "64", "--out", folder.path()})),
      HasSubstr("got the folder"));
  EXPECT_THAT(folder.names(), IsEmpty());
  const Finished finished =
      run_stof({"mask", "draw", "causal", "--seq", "64", "--out", "/proc/m.png"});
  EXPECT_EQ(finished.exit_code, 1);  // the system's refusal, not a wrong command
  EXPECT_THAT(finished.err, StartsWith("stof: error: --out: /proc/m.png: cannot be written"));
}

TEST(MaskConvert, RoundTripsThroughEveryForm) {
  const TemporaryFolder folder;
  const std::string mask = "causal & window(5,0) | global(cols=2)";
  const auto convert = [&folder](const std::string& source, const std::string& to,
                                 const std::string& name, bool with_seq = true) {
    std::vector<std::string> arguments = {"mask", "convert", source,       "--to",
                                          to,     "--out",   folder / name};
    if (with_seq) arguments.insert(arguments.end(), {"--seq", "70"});
    const Finished finished = run_stof(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return folder / name;
  };
  const std::string as_json = convert(mask, "json", "m.json");
  const std::string as_text = convert(as_json, "text", "m.txt");
  const std::string as_block = convert(as_text, "block", "m.safetensors");
  const std::string as_array = convert(as_block, "npy", "m.npy", false);
  const std::string block_again = convert(as_array, "block", "again.safetensors", false);

  EXPECT_EQ(read_file(as_text), run_stof({"mask", "convert", mask, "--to", "text"}).out);
  EXPECT_EQ(mask::BlockMask::load(as_block).fingerprint(),
            mask::BlockMask::load(block_again).fingerprint());
  const Tensor array = load_npy(as_array);
  ASSERT_EQ(array.dtype(), DType::kBool);
  ASSERT_EQ(array.size(), 70 * 70);
  const auto* seen = static_cast<const std::uint8_t*>(array.data());
  for (std::int64_t q = 0; q < 70; ++q)
    for (std::int64_t k = 0; k < 70; ++k)
      ASSERT_EQ(seen[q * 70 + k] != 0, (k <= q && k >= q - 5) || k < 2) << q << ", " << k;
}

TEST(MaskSource, StoredBlocksShowWhatTheirExpressionShows) {
  const TemporaryFolder folder;
  const std::string mask = "bigbird(32, 1, 1, 2) & ~window(3,3)", block = folder / "m.safetensors";
  ASSERT_EQ(
      run_stof({"mask", "convert", mask, "--seq", "700", "--to", "block", "--out", block}).err, "");
  const auto rows = [](const Finished& finished) { return json::parse(finished.out).at("rows"); };
  EXPECT_EQ(rows(run_stof({"mask", "show", block, "--json"})),
            rows(run_stof({"mask", "show", mask, "--seq", "700", "--json"})));
  for (const char* row : {"0", "63", "350", "699"})
    EXPECT_EQ(run_stof({"mask", "show", block, "--row", row}).out, row_of(mask, "700", row));
}

TEST(MaskConvert, BinaryFormsNeedAFile) {
  EXPECT_THAT(user_error(run_stof({"mask", "convert", "causal", "--seq", "8", "--to", "block"})),
              StartsWith("--out: expected a file name"));
}

TEST(MaskConvert, RefusesAShapeOtherThanStored) {
  const TemporaryFolder folder;
  const std::string block = folder / "m.safetensors";
  ASSERT_EQ(run_stof({"mask", "convert", "causal", "--seq", "80", "--to", "block", "--out", block})
                .exit_code,
            0);
  EXPECT_THAT(user_error(run_stof({"mask", "stats", block, "--seq", "64"})),
              StartsWith("--seq: expected 80 as stored"));
}

TEST(MaskList, NamesWordsThatParse) {
  const Finished finished = run_stof({"mask", "list"});
  EXPECT_EQ(finished.exit_code, 0);
  for (const char* name : {"causal", "window", "bigbird", "longformer", "document"})
    EXPECT_THAT(finished.out, HasSubstr(name));
}

}  // namespace
}  // namespace stof::cli
