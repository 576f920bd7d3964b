#pragma once
// Fixed-width names, since device sources include no standard header.

namespace stof {

using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

}  // namespace stof
