// The one place that includes Catch2: version 2 (Debian 12) and version 3 put it in different
// files.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

// Under ThreadSanitizer memory is shadowed and everything takes ten to twenty times as long.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif
