// The least a project does with stof: links it, uses a value and catches an error.

#include <cstdio>

#include "stof/error.h"
#include "stof/fingerprint.h"

int main() {
  const stof::Error error(stof::ErrorCode::kCorrupt, "a.safetensors: header is too long");
  std::printf("%s: %s %s\n", stof::to_string(error.code()), error.what(), stof::Fingerprint{}.hex().c_str());
  return error.is_user_fault() ? 0 : 1;
}
