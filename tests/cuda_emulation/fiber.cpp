#include "tests/cuda_emulation/fiber.hpp"

#include <cstdint>
#include <new>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ZP_FIBERS_TOLD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZP_FIBERS_TOLD 1
#endif
#endif
#if defined(ZP_FIBERS_TOLD)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the registers that a call preserves (System V AMD64 ABI), the stack's pointer to *from, and
// goes on at `to`.
extern "C" void zp_switch_stack(void** from, void* to);
asm(R"(
.text
.globl zp_switch_stack
.hidden zp_switch_stack
.type zp_switch_stack,@function
zp_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size zp_switch_stack,.-zp_switch_stack
)");
#endif

namespace zeroplan::runtime::cuda::emulation {
namespace {

constexpr std::size_t kStack = std::size_t{256} * 1024;  // reserved; pages come as they are touched

Fiber* starting = nullptr;  // handed to begin()

}  // namespace

Fiber::Fiber()
    : stack_(static_cast<std::byte*>(
          mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
}

Fiber::~Fiber() { munmap(stack_, kStack); }

void Fiber::start(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
#if defined(ZP_FIBERS_TOLD)
  // What a thread that a fault left behind had poisoned.
  if (!finished_) __asan_unpoison_memory_region(stack_, kStack);
  finished_ = false;
#endif
  fake_inside_ = nullptr;
#if defined(__x86_64__)
  // As zp_switch_stack leaves it: six registers, then where to go; 8 modulo 16 after the return.
  auto* top = reinterpret_cast<void**>(stack_ + kStack) - 2;
  *top = reinterpret_cast<void*>(&Fiber::begin);
  inside_ = top - 6;
  for (int i = 1; i <= 6; ++i) top[-i] = nullptr;
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = kStack;
  makecontext(&inside_, &Fiber::begin, 0);
#endif
}

void Fiber::begin() {
  Fiber* self = starting;
#if defined(ZP_FIBERS_TOLD)
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_size_);
#endif
  self->entry_(self->argument_);
}

void Fiber::enter() {
  starting = this;
#if defined(ZP_FIBERS_TOLD)
  __sanitizer_start_switch_fiber(&fake_outside_, stack_, kStack);
#endif
#if defined(__x86_64__)
  zp_switch_stack(&outside_, inside_);
#else
  swapcontext(&outside_, &inside_);
#endif
#if defined(ZP_FIBERS_TOLD)
  __sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr);
#endif
}

void Fiber::leave(bool for_good) {
  finished_ = for_good;
#if defined(ZP_FIBERS_TOLD)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_inside_, outside_stack_, outside_size_);
#endif
#if defined(__x86_64__)
  zp_switch_stack(&inside_, outside_);
#else
  swapcontext(&inside_, &outside_);
#endif
#if defined(ZP_FIBERS_TOLD)
  __sanitizer_finish_switch_fiber(fake_inside_, &outside_stack_, &outside_size_);
#endif
}

}  // namespace zeroplan::runtime::cuda::emulation
