// A stack of its own that is entered and left by hand: by a few instructions on x86-64, by
// ucontext elsewhere; sanitizers are told.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace zeroplan::runtime::cuda::emulation {

class Fiber {
 public:
  using Entry = void (*)(void*);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next enter() begins `entry`, which must not return.
  void start(Entry entry, void* argument);
  // From outside: goes on where the fiber left.
  void enter();
  // From inside: goes on after enter(). for_good: until start() is called again.
  void leave(bool for_good);

 private:
  static void begin();

  std::byte* stack_ = nullptr;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* inside_ = nullptr;
  void* outside_ = nullptr;
#else
  ucontext_t inside_{}, outside_{};
#endif
  bool finished_ = true;
  [[maybe_unused]] void* fake_inside_ = nullptr;  // AddressSanitizer's
  [[maybe_unused]] void* fake_outside_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] std::size_t outside_size_ = 0;
};

}  // namespace zeroplan::runtime::cuda::emulation
