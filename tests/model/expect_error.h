#pragma once
// What an action that must fail says.

#include <gtest/gtest.h>

#include <string>

#include "stof/error.h"

namespace stof::model {

/// The text of the stof::Error of that code that `action` throws.
template <class Action>
std::string expect_error(ErrorCode code, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace stof::model
