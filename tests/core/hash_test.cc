#include "core/hash.h"

#include <gtest/gtest.h>

namespace stof {
namespace {

TEST(Hasher, SeparatesFieldsThatConcatenateEqually) {
  EXPECT_NE(Hasher().add("ab").add("c").finish(), Hasher().add("a").add("bc").finish());
}

TEST(Fingerprint, IsTheSameOnEveryMachine) {
  // XXH3-128 of the empty string, from the xxHash specification's test vectors.
  EXPECT_EQ(fingerprint_of("").hex(), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace stof
