// What NCCL asks of the GPU beneath it: of the emulated one (collectives.cpp), or of a real one
// whose other ranks are not there (rehearsal/real_gpu). Pointers are the GPU's, streams CUDA's
// handles; units: bytes.
#pragma once

#include <cstddef>

namespace zeroplan::gpu {

struct CollectiveCall {
  const char* name;   // all_gather, reduce_scatter, all_reduce, broadcast, ...
  std::size_t bytes;  // one rank's part of what is gathered, the whole otherwise
  int ranks;
  bool joins;  // it is launched together with the call before it
};

// Around what a collective copies on its stream: `end_collective` puts the rest of it there.
void begin_collective(void* stream);
void end_collective(const CollectiveCall& call, void* stream);

// Whether so many bytes are copied at all.
bool carries(std::size_t bytes);
// Copies on the stream what is carried; the rest stays as it is.
void carry(void* to, const void* from, std::size_t bytes, void* stream);
// Multiplies `count` whole numbers of `width` bytes (4 or 8) on the stream, where they are carried.
void multiply_whole_numbers(
    void* at, std::size_t count, std::size_t width, int factor, void* stream);

// Null where the GPU has not so much left.
void* allocate_on_gpu(std::size_t bytes);
void free_on_gpu(void* address);

}  // namespace zeroplan::gpu
