#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/file.h"
#include "mask/registry.h"
#include "stof/error.h"
#include "stof/mask.h"
#include "stof/npy.h"

namespace stof::mask {
namespace {

std::string message_of(const std::string& text, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    parse(text, "/nonexistent");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text;
    return error.what();
  }
  return "no error";
}

std::vector<std::int64_t> keys(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> out;
  for (std::int64_t k = begin; k <= end; ++k) out.push_back(k);
  return out;
}

TEST(Parser, BindsNotThenAndThenOr) {
  EXPECT_EQ(parse("causal & chunked(4) | prefix(2)").to_text(),
            ((causal() & chunked(4)) | prefix(2)).to_text());
  EXPECT_EQ(parse("prefix(2) | causal & chunked(4)").to_text(),
            (prefix(2) | (causal() & chunked(4))).to_text());
  EXPECT_EQ(parse("causal & (chunked(4) | prefix(2))").to_text(),
            (causal() & (chunked(4) | prefix(2))).to_text());
  EXPECT_EQ(parse("~causal & chunked(4)").to_text(), (~causal() & chunked(4)).to_text());
  EXPECT_EQ(parse("~(causal & chunked(4))").to_text(), (~(causal() & chunked(4))).to_text());
}

// Case 36: the window belongs to both parts, or only to the image part: order matters.
TEST(Parser, KeepsTheOrderOfCausalImageAndWindow) {
  const std::string image = "shifted(document([8]), dq=-2, dk=-2)";  // tokens 2..9
  const auto row = [&](const std::string& text, std::int64_t q) {
    return parse(text).visible_keys(0, 0, q, 12);
  };
  const std::string all_windowed = "(causal | " + image + ") & window(3, -1)";
  EXPECT_EQ(row(all_windowed, 9), keys(6, 9));
  EXPECT_EQ(row(all_windowed, 11), keys(8, 11));
  EXPECT_EQ(row(all_windowed, 3), keys(0, 9));
  EXPECT_EQ(row("(causal | " + image + ") & window(3, 3)", 3), keys(0, 6));
  EXPECT_EQ(row("causal | " + image, 3), keys(0, 9));
  EXPECT_EQ(row("causal | " + image + " & window(3, 3)", 11), keys(0, 11));
  EXPECT_EQ(row("causal | " + image + " & window(3, 3)", 3), keys(0, 6));
}

TEST(Parser, TakesPositionalAndNamedArguments) {
  const std::string expected = window(256, 0).to_text();
  EXPECT_EQ(parse("window(256, 0)").to_text(), expected);
  EXPECT_EQ(parse("window(left=256, right=0)").to_text(), expected);
  EXPECT_EQ(parse("window(right=0, left=256)").to_text(), expected);
  EXPECT_EQ(parse(" window\t(\n256 ,right\r\n= 0) ").to_text(), expected);
  EXPECT_EQ(parse("random(rate=1, seed=18446744073709551615)").to_text(),
            "random(1, 18446744073709551615)");
  EXPECT_EQ(parse("random(0.10)").to_text(), "random(0.1)");
  EXPECT_EQ(parse("random(1e-3)").to_text(), "random(0.001)");
  EXPECT_EQ(parse("causal()").to_text(), "causal");
  EXPECT_EQ(parse("per_head([causal, window(4, 0)])").to_text(),
            per_head({causal(), window(4, 0)}).to_text());
  EXPECT_EQ(parse("shifted(causal, dk=0, dq=3)").to_text(), "shifted(causal, 3)");
}

TEST(Parser, EveryFunctionHasHelpAndReadsItsOwnExample) {
  ASSERT_EQ(mask_help().size(), functions().size());
  for (std::size_t i = 0; i < functions().size(); ++i) {
    const Function& function = functions()[i];
    const MaskHelp& help = mask_help()[i];
    EXPECT_EQ(help.name, function.name);
    EXPECT_EQ(help.signature.rfind(function.name, 0), 0u);
    EXPECT_GT(help.meaning.size(), 10u) << function.name;
    EXPECT_EQ(help.meaning.find('\n'), std::string::npos) << function.name;
    EXPECT_EQ(find_function(function.name), &function) << "a name stands twice";
    const Mask mask = parse(function.example);
    EXPECT_EQ(parse(mask.to_text()).fingerprint(), mask.fingerprint()) << function.name;
    for (const Param& param : function.params) {
      EXPECT_EQ(function.find_param(param.name), &param) << "a parameter stands twice";
    }
    if (!function.needs_arguments()) {
      EXPECT_NO_THROW(parse(function.name)) << function.name;
    }
  }
}

TEST(Parser, PointsAtWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"causal & casual",
       "mask, column 10: unknown mask \"casual\"; did you mean \"causal\"?\n"
       "  causal & casual\n"
       "           ^"},
      {"window(2.5, 0)",
       "mask, column 8: window: left: expected a whole number, got 2.5\n"
       "  window(2.5, 0)\n"
       "         ^"},
      {"window(3)",
       "mask, column 1: window: right is missing; expected window(left, right)\n"
       "  window(3)\n"
       "  ^"},
      {"window",
       "mask, column 1: window needs arguments: expected window(left, right)\n"
       "  window\n"
       "  ^"},
      {"window(3, 0, 1)",
       "mask, column 14: window: expected at most 2 arguments: window(left, right)\n"
       "  window(3, 0, 1)\n"
       "               ^"},
      {"window(3, lft=2)",
       "mask, column 11: window has no parameter \"lft\"; did you mean \"left\"?\n"
       "  window(3, lft=2)\n"
       "            ^"},
      {"window(left=3, 0)",
       "mask, column 16: window: expected name=value, as the argument before, got 0\n"
       "  window(left=3, 0)\n"
       "                 ^"},
      {"prefix(n=3, n=4)",
       "mask, column 15: prefix: n: given twice\n"
       "  prefix(n=3, n=4)\n"
       "                ^"},
      {"(causal",
       "mask, column 8: expected \")\" to close the \"(\" 7 characters before, got the end of the "
       "text\n"
       "  (causal\n"
       "         ^"},
      {"causal)",
       "mask, column 7: expected &, | or the end of the text, got \")\"\n"
       "  causal)\n"
       "        ^"},
      {"",
       "mask, column 1: expected a mask, got the end of the text\n"
       "  \n"
       "  ^"},
      {"causal &",
       "mask, column 9: expected a mask, got the end of the text\n"
       "  causal &\n"
       "          ^"},
      {"causal && all",
       "mask, column 9: expected a mask, got a second &; write one &\n"
       "  causal && all\n"
       "          ^"},
      {"!causal",
       "mask, column 1: unexpected \"!\"; write ~ for not\n"
       "  !causal\n"
       "  ^"},
      {"window(4k, 0)",
       "mask, column 8: expected a number such as 256, -1 or 0.5, got \"4k\"\n"
       "  window(4k, 0)\n"
       "         ^"},
      {"causal(99999999999999999999999)",
       "mask, column 8: number out of range: expected at most 18446744073709551615, got "
       "99999999999999999999999\n"
       "  causal(99999999999999999999999)\n"
       "         ^"},
      {"causal(18446744073709551615)",
       "mask, column 8: causal: offset: expected at most 9223372036854775807, got "
       "18446744073709551615\n"
       "  causal(18446744073709551615)\n"
       "         ^"},
      {"random(0.5, seed=-1)",
       "mask, column 18: random: seed: expected a whole number from 0, got -1\n"
       "  random(0.5, seed=-1)\n"
       "                   ^"},
      {"global_tokens([1, \"x\"])",
       "mask, column 19: global_tokens: tokens: expected a whole number, got \"x\"\n"
       "  global_tokens([1, \"x\"])\n"
       "                    ^"},
      {"blocks(block_q=4, block_kv=4, heads=[[[0], [1, -1]]])",
       "mask, column 48: blocks: heads: expected a block column in 0..2147483647, got -1\n"
       "  blocks(block_q=4, block_kv=4, heads=[[[0], [1, -1]]])\n"
       "                                                 ^"},
      {"prefix(causal)",
       "mask, column 8: prefix: n: expected a whole number, got a mask\n"
       "  prefix(causal)\n"
       "         ^"},
      {"shifted(3)",
       "mask, column 9: shifted: of: expected a mask, got 3\n"
       "  shifted(3)\n"
       "          ^"},
      {"all & chunked(0)",
       "mask, column 7: chunked(n=0): expected 1 to 1099511627776\n"
       "  all & chunked(0)\n"
       "        ^"},
      {"dense(\"a.npy)",
       "mask, column 7: string without a closing \"\n"
       "  dense(\"a.npy)\n"
       "        ^"},
      {"dense(shape=[2, 9], bits=\"ff00\")",
       "mask, column 1: dense: bits: expected 8 hexadecimal digits for shape [2, 9] (each row "
       "padded to whole bytes), got 4\n"
       "  dense(shape=[2, 9], bits=\"ff00\")\n"
       "  ^"},
      {"dense(shape=[1, 9], bits=\"ff02\")",
       "mask, column 1: dense: bits: row 0 sets a bit past its 9 keys\n"
       "  dense(shape=[1, 9], bits=\"ff02\")\n"
       "  ^"},
      {"random_blocks(4)",
       "mask, column 1: random_blocks: expected either count (block columns per block row) or rate "
       "(0 to 1), got neither\n"
       "  random_blocks(4)\n"
       "  ^"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of(text), message) << text;
}

TEST(Parser, ListsAllNamesWhenNoneIsNear) {
  const std::string message = message_of("xyzzy");
  for (const Function& function : functions()) {
    EXPECT_NE(message.find(function.name), std::string::npos) << function.name;
  }
}

TEST(Parser, CountsColumnsInCodePointsAndLines) {
  EXPECT_EQ(message_of("causal\n\t& windw(3)"),
            "mask, line 2, column 4: unknown mask \"windw\"; did you mean \"window\"?\n"
            "   & windw(3)\n"
            "     ^");
  // Two-byte, three-byte (two columns wide) and broken bytes before the caret.
  EXPECT_EQ(
      message_of("blocks(\"\xc3\xa4\xe6\xbc\xa2\xff\") & x y", ErrorCode::kNotFound).substr(0, 16),
      "mask, column 1: ");
  EXPECT_EQ(message_of("prefix(\"\xc3\xa4\xe6\xbc\xa2\xff\" %)"),
            "mask, column 14: unexpected character; expected a mask name, a number, a string or "
            "one of ( ) [ ] , = & | ~\n"
            "  prefix(\"\xc3\xa4\xe6\xbc\xa2?\" %)\n"
            "                ^");
}

TEST(Parser, CutsLongLinesAroundTheCaret) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "causal & ";
  text += "oops & ";
  for (int i = 0; i < 100; ++i) text += "causal & ";
  const std::string message = message_of(text + "causal");
  const std::size_t line = message.find('\n') + 1;
  const std::string shown = message.substr(line, message.find('\n', line) - line);
  const std::string caret = message.substr(message.find('\n', line) + 1);
  EXPECT_LE(shown.size(), 80u);
  EXPECT_EQ(shown.substr(0, 5), "  ...");
  EXPECT_EQ(shown.substr(shown.size() - 3), "...");
  EXPECT_EQ(shown.substr(caret.size() - 1, 4), "oops");
}

TEST(Parser, RefusesDeepNestingOfEveryKind) {
  const auto repeat = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  for (const int n : {300, 100000}) {
    for (const std::string open : {"(", "~", "[", "prefix(", "per_head([", "not(", "~("}) {
      EXPECT_NE(message_of(repeat(open, n) + "causal"), "no error") << open;
    }
  }
  EXPECT_NE(message_of(repeat("~", 150) + "causal").find("nested deeper than 100"),
            std::string::npos);
  EXPECT_NO_THROW(parse(repeat("(", 150) + "causal" + repeat(")", 150)));
}

TEST(Parser, RefusesNumbersThatAreNone) {
  for (const std::string number : {"nan", "inf", "-inf", "-nan", "1e999", "0x10", "1.2.3", "--1",
                                   "-", ".", "1e", "1_000", "+-1"}) {
    EXPECT_NE(message_of("random(" + number + ")"), "no error") << number;
  }
}

class ParserFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stof_parser_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    write_file((folder_ / name).string(), text);
  }
  std::string error(const std::string& text, ErrorCode code) {
    try {
      parse(text, folder_.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
};

TEST_F(ParserFiles, ReadsBlockListsRelativeToTheBaseFolder) {
  write("lists.json", R"({"block_q": 4, "block_kv": 2, "heads": [[[1, 0], [2]]]})");
  EXPECT_EQ(parse("blocks(\"lists.json\")", folder_.string()).to_text(),
            "blocks(block_q=4, block_kv=2, heads=[[[0, 1], [2]]])");
  write("ragged.json", R"({"row_sizes": [3, 1], "col_sizes": [2, 2], "heads": [[[1], [0]]]})");
  EXPECT_EQ(parse("blocks(\"ragged.json\")", folder_.string()).to_text(),
            "blocks(heads=[[[1], [0]]], row_sizes=[3, 1], col_sizes=[2, 2])");
}

TEST_F(ParserFiles, ReadsBooleanArraysFromNpy) {
  const std::vector<std::uint8_t> visible = {1, 0, 0, 1, 1, 0};
  save_npy((folder_ / "mask.npy").string(), TensorView(visible.data(), DType::kBool, {2, 3}));
  const Mask mask = parse("dense(\"mask.npy\")", folder_.string());
  EXPECT_EQ(mask.to_text(), "dense(shape=[1, 1, 2, 3], bits=\"0103\")");
  write("mask.npy", "not numpy");
  EXPECT_NE(error("dense(\"mask.npy\")", ErrorCode::kCorrupt).find("mask.npy"), std::string::npos);
}

TEST_F(ParserFiles, NamesTheFileAndFieldOfACorruptBlockList) {
  write("bad.json", R"({"block_q": 4, "block_kv": 2, "heads": [[[0], ["x"]]]})");
  EXPECT_NE(error("blocks(\"bad.json\")", ErrorCode::kCorrupt)
                .find("bad.json: $.heads[0][1][0]: expected a block column (a whole number), got "
                      "\"x\""),
            std::string::npos);
  for (const std::string text :
       {"", "[", "[]", "3", "{}", R"({"heads": 3})",
        R"({"block_q": 4, "block_kv": 2, "heads": [[[0]]], "x": 1})",
        R"({"block_q": 0, "block_kv": 2, "heads": [[[0]]], "op": "all"})"}) {
    write("bad.json", text);
    EXPECT_NE(error("blocks(\"bad.json\")", ErrorCode::kCorrupt).find("bad.json"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(error("blocks(\"missing.json\")", ErrorCode::kNotFound).find("missing.json"),
            std::string::npos);
}

TEST(Parser, ReadsNoFilesWithoutABaseFolder) {
  EXPECT_THROW(
      {
        try {
          parse("blocks(\"/etc/hostname\")", "");
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
          EXPECT_NE(std::string(error.what()).find("files are not read here"), std::string::npos);
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace stof::mask
