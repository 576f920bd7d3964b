#pragma once
// STOF_FUSE: what fusion may use, for finding out which part of it a fault is in.

#include <set>
#include <string>
#include <string_view>

namespace stof::exec {

struct FuseSwitches {
  bool fuse = true;                ///< off: every operator is a segment of its own
  std::set<std::string> disabled;  ///< families of choices that are not used

  bool allows(const std::string& family) const { return !disabled.contains(family); }
  bool operator==(const FuseSwitches&) const = default;

  /// "", "on", "off", or families with a minus: "-gemm_sm90,-row"; "off,-gemm_sm90" is both.
  /// Throws InvalidArgument naming the word that does not fit.
  static FuseSwitches parse(std::string_view text);
  /// Of the environment variable STOF_FUSE.
  static FuseSwitches from_environment();
};

}  // namespace stof::exec
