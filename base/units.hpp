// Strong types for the quantities that cross headers, and their literals.
//
//   Bytes, Elements   int64, because an allocator rounds and compares them; products are checked.
//   Seconds, Flops, BytesPerSecond, FlopsPerSecond   double.
//
// There is no constructor from a bare number: a value is made by a named factory or a literal
// (Bytes::gib(80), 6_GB, 300.0_GBps, 2.0_us) and read back by a named reader (.count(),
// .seconds()). A ratio of like units is a plain double. Few products are defined, and only those
// that have a meaning: Bytes / BytesPerSecond = Seconds, Flops / FlopsPerSecond = Seconds, Elements
// * width = Bytes. "No limit" is infinity: Bytes::infinite(), Elements::infinite(), or an infinite
// double.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "base/check.hpp"

namespace zeroplan {

namespace detail {

// a * b; throws SizeOverflow where it does not fit int64.
constexpr std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw SizeOverflow();
  return product;
}

constexpr std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw SizeOverflow();
  return sum;
}

// Arithmetic shared by the two integer counts. Infinity is the largest int64 and absorbs additions.
template <typename Derived>
class IntegerCount {
 public:
  constexpr IntegerCount() = default;

  static constexpr Derived of(std::int64_t count) { return Derived(count); }
  static constexpr Derived zero() { return Derived(0); }
  static constexpr Derived infinite() { return Derived(kInfinite); }

  constexpr std::int64_t count() const { return count_; }
  constexpr bool is_infinite() const { return count_ == kInfinite; }

  friend constexpr auto operator<=>(const Derived& a, const Derived& b) {
    return a.count() <=> b.count();
  }
  friend constexpr bool operator==(const Derived& a, const Derived& b) {
    return a.count() == b.count();
  }
  friend constexpr Derived operator+(Derived a, Derived b) {
    if (a.is_infinite() || b.is_infinite()) return Derived::infinite();
    return Derived::of(checked_sum(a.count(), b.count()));
  }
  friend constexpr Derived operator-(Derived a, Derived b) {
    if (a.is_infinite()) return Derived::infinite();
    return Derived::of(checked_sum(a.count(), -b.count()));
  }
  friend constexpr Derived operator*(Derived a, std::int64_t factor) {
    return Derived::of(checked_product(a.count(), factor));
  }
  friend constexpr Derived operator*(std::int64_t factor, Derived a) { return a * factor; }
  // Integer division, rounding down.
  friend constexpr Derived operator/(Derived a, std::int64_t divisor) {
    return Derived::of(a.count() / divisor);
  }
  friend constexpr double operator/(Derived a, Derived b) {
    return static_cast<double>(a.count()) / static_cast<double>(b.count());
  }
  constexpr Derived& operator+=(Derived other) { return self() = self() + other; }
  constexpr Derived& operator-=(Derived other) { return self() = self() - other; }

 protected:
  constexpr explicit IntegerCount(std::int64_t count) : count_(count) {}

 private:
  static constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();
  constexpr Derived& self() { return static_cast<Derived&>(*this); }
  std::int64_t count_ = 0;
};

// Arithmetic shared by the real-valued quantities.
template <typename Derived>
class RealQuantity {
 public:
  constexpr RealQuantity() = default;

  static constexpr Derived of(double value) { return Derived(value); }
  static constexpr Derived zero() { return Derived(0.0); }
  static constexpr Derived infinite() { return Derived(std::numeric_limits<double>::infinity()); }

  constexpr double value() const { return value_; }
  constexpr bool is_infinite() const { return value_ == std::numeric_limits<double>::infinity(); }

  friend constexpr auto operator<=>(const Derived& a, const Derived& b) {
    return a.value() <=> b.value();
  }
  friend constexpr bool operator==(const Derived& a, const Derived& b) {
    return a.value() == b.value();
  }
  friend constexpr Derived operator+(Derived a, Derived b) {
    return Derived::of(a.value() + b.value());
  }
  friend constexpr Derived operator-(Derived a, Derived b) {
    return Derived::of(a.value() - b.value());
  }
  friend constexpr Derived operator*(Derived a, double factor) {
    return Derived::of(a.value() * factor);
  }
  friend constexpr Derived operator*(double factor, Derived a) { return a * factor; }
  friend constexpr Derived operator/(Derived a, double divisor) {
    return Derived::of(a.value() / divisor);
  }
  friend constexpr double operator/(Derived a, Derived b) { return a.value() / b.value(); }
  constexpr Derived& operator+=(Derived other) { return self() = self() + other; }
  constexpr Derived& operator-=(Derived other) { return self() = self() - other; }

 protected:
  constexpr explicit RealQuantity(double value) : value_(value) {}

 private:
  constexpr Derived& self() { return static_cast<Derived&>(*this); }
  double value_ = 0.0;
};

}  // namespace detail

// An amount of memory or traffic. GB is 10^9, GiB is 2^30; both are named.
class Bytes : public detail::IntegerCount<Bytes> {
 public:
  constexpr Bytes() = default;
  static constexpr Bytes kib(std::int64_t n) { return Bytes(detail::checked_product(n, 1 << 10)); }
  static constexpr Bytes mib(std::int64_t n) { return Bytes(detail::checked_product(n, 1 << 20)); }
  static constexpr Bytes gib(std::int64_t n) { return Bytes(detail::checked_product(n, 1 << 30)); }
  // From a real number of bytes, rounded to the nearest; throws SizeOverflow past 2^63.
  static Bytes nearest(double bytes) {
    constexpr double kLimit = 9.2e18;
    if (!(std::abs(bytes) < kLimit)) throw SizeOverflow();
    return Bytes(std::llround(bytes));
  }
  constexpr double gib() const { return static_cast<double>(count()) / (1 << 30); }
  constexpr double gb() const { return static_cast<double>(count()) / 1e9; }

 private:
  friend class detail::IntegerCount<Bytes>;
  constexpr explicit Bytes(std::int64_t count) : IntegerCount(count) {}
};

// A number of tensor elements: the unit of DeepSpeed's bucket and threshold keys.
class Elements : public detail::IntegerCount<Elements> {
 public:
  constexpr Elements() = default;
  // Bytes of this many elements of `width` bytes each.
  constexpr Bytes times_width(std::int64_t width) const {
    return is_infinite() ? Bytes::infinite() : Bytes::of(detail::checked_product(count(), width));
  }

 private:
  friend class detail::IntegerCount<Elements>;
  constexpr explicit Elements(std::int64_t count) : IntegerCount(count) {}
};

class Seconds : public detail::RealQuantity<Seconds> {
 public:
  constexpr Seconds() = default;
  static constexpr Seconds micro(double us) { return Seconds(us * 1e-6); }
  constexpr double seconds() const { return value(); }

 private:
  friend class detail::RealQuantity<Seconds>;
  constexpr explicit Seconds(double seconds) : RealQuantity(seconds) {}
};

class Flops : public detail::RealQuantity<Flops> {
 public:
  constexpr Flops() = default;

 private:
  friend class detail::RealQuantity<Flops>;
  constexpr explicit Flops(double flops) : RealQuantity(flops) {}
};

class BytesPerSecond : public detail::RealQuantity<BytesPerSecond> {
 public:
  constexpr BytesPerSecond() = default;

 private:
  friend class detail::RealQuantity<BytesPerSecond>;
  constexpr explicit BytesPerSecond(double rate) : RealQuantity(rate) {}
};

class FlopsPerSecond : public detail::RealQuantity<FlopsPerSecond> {
 public:
  constexpr FlopsPerSecond() = default;

 private:
  friend class detail::RealQuantity<FlopsPerSecond>;
  constexpr explicit FlopsPerSecond(double rate) : RealQuantity(rate) {}
};

constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Seconds::of(static_cast<double>(bytes.count()) / rate.value());
}
constexpr Seconds operator/(Flops flops, FlopsPerSecond rate) {
  return Seconds::of(flops.value() / rate.value());
}
constexpr FlopsPerSecond operator/(Flops flops, Seconds time) {
  return FlopsPerSecond::of(flops.value() / time.value());
}

// ceil(a / b) and the next multiple of b, for b > 0 and a >= 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return detail::checked_product(ceil_div(a, b), b);
}

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes::of(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes::kib(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes::mib(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes::gib(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_GB(unsigned long long n) {
  return Bytes::of(detail::checked_product(static_cast<std::int64_t>(n), 1000000000));
}
constexpr Elements operator""_elements(unsigned long long n) {
  return Elements::of(static_cast<std::int64_t>(n));
}
constexpr BytesPerSecond operator""_GBps(long double n) {
  return BytesPerSecond::of(static_cast<double>(n) * 1e9);
}
constexpr FlopsPerSecond operator""_TFLOPS(long double n) {
  return FlopsPerSecond::of(static_cast<double>(n) * 1e12);
}
constexpr Seconds operator""_s(long double n) { return Seconds::of(static_cast<double>(n)); }
constexpr Seconds operator""_us(long double n) { return Seconds::micro(static_cast<double>(n)); }
}  // namespace literals

}  // namespace zeroplan
