#pragma once
// Configurations of products as choices that are stored and compared by content.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "backend/cuda/gemm/problem.h"
#include "fusion/choice.h"

namespace stof::cuda {

inline constexpr const char* kSm90GemmFamily = "gemm_sm90";

/// A number of a configuration, and the name under which choices have it.
template <class Config>
using ChoiceField = std::pair<const char*, int Config::*>;

/// A choice of `family`: the numbers of `fields`. What the problem says plays no part.
template <class Config, std::size_t kCount>
fusion::Choice choice_by(const char* family, const ChoiceField<Config> (&fields)[kCount],
                         const Config& config) {
  fusion::Choice choice{family, {}};
  for (const auto& [name, field] : fields) choice.parameters[name] = config.*field;
  return choice;
}

/// Throws InvalidArgument naming the choice where its family is another.
void expect_family(const fusion::Choice& choice, const char* family);
/// Throws InvalidArgument naming the parameter that is missing or out of range.
int choice_number(const fusion::Choice& choice, const char* name, int least, int most);
/// Throws InvalidArgument where `reason` is not empty.
void expect_fit(const fusion::Choice& choice, const std::string& problem,
                const std::string& reason);

/// Inverse of choice_by(): `config` has what the problem decides, and gets what the choice does.
/// Throws InvalidArgument naming the parameter that is missing, or the choice and what about it
/// does not fit the problem, which `described` describes.
template <class Config, std::size_t kCount>
Config config_by(const char* family, const ChoiceField<Config> (&fields)[kCount],
                 const fusion::Choice& choice, Config config, const std::string& described) {
  constexpr int kMost = 1024;
  expect_family(choice, family);
  for (const auto& [name, field] : fields) config.*field = choice_number(choice, name, 1, kMost);
  expect_fit(choice, described, config.problem());
  return config;
}

/// Schedule, tile, stages and so on.
fusion::Choice choice_of(const codegen::GemmConfig& config);

/// Inverse, for the problem's steps and element types. Throws as config_by().
codegen::GemmConfig gemm_config_of(const fusion::Choice& choice, const GemmProblem& problem);

}  // namespace stof::cuda
