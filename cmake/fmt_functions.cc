// fmt's functions as part of the wheel's library: Debian's static libfmt cannot go into a shared
// one, and fmt's header-only form doubles the time that every source takes to compile.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref) -> char;
