"""DeepSpeed's asynchronous reads and writes of files (csrc/aio), and its locked memory (csrc/pin_memory).

Files hold nothing and are not made: what is read is what the buffer held. Which tensors are read and written, when, and
into which buffers, is DeepSpeed's. An operation ends when it is waited for.
"""
from . import gpu


class Locked:
    """Tensors of the host in memory that mlock keeps there."""

    def __init__(self):
        self.bytes_at = {}

    def new(self, count, example):
        import torch

        tensor = torch.zeros(int(count), dtype=example.dtype, device="cpu")
        self.bytes_at[tensor.data_ptr()] = (tensor.nbytes, tensor)
        gpu.lock(tensor.nbytes)
        return tensor

    def free_at(self, address):
        count, _ = self.bytes_at.pop(address, (None, None))
        if count is None:
            return False
        gpu.unlock(count)
        return True

    def holds(self, tensor):
        if tensor.device.type != "cpu":
            return False
        begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        return any(first <= begin and end <= first + count for first, (count, _) in self.bytes_at.items())


LOCKED = Locked()


class PinHandle:
    def new_cpu_locked_tensor(self, num_elem, example_tensor):
        return LOCKED.new(num_elem, example_tensor)

    def free_cpu_locked_tensor(self, tensor):
        return LOCKED.free_at(tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address):
        return LOCKED.free_at(address)

    def is_pinned(self, tensor):
        return LOCKED.holds(tensor) or tensor.is_pinned()


class AsyncIOHandle(PinHandle):
    made = 0

    def __init__(self, block_size=1 << 20, queue_depth=128, single_submit=False, overlap_events=False,
                 intra_op_parallelism=1):
        self.settings = block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism
        self.pending = 0
        self.number = AsyncIOHandle.made
        AsyncIOHandle.made += 1

    def get_block_size(self):
        return self.settings[0]

    def get_queue_depth(self):
        return self.settings[1]

    def get_single_submit(self):
        return self.settings[2]

    def get_overlap_events(self):
        return self.settings[3]

    def get_intra_op_parallelism(self):
        return self.settings[4]

    get_thread_count = get_intra_op_parallelism  # its name before DeepSpeed 0.15

    def get_alignment(self):
        return 512 * self.settings[4]

    def _begin(self, way, buffer):
        self.pending += 1
        if gpu.writes():
            block, depth, _, _, threads = self.settings
            gpu.note("file", "%d %s %d %d %d %d" % (self.number, way, buffer.nbytes, block, depth, threads))
        return 0

    def async_pread(self, buffer, filename, file_offset=0):
        return self._begin("read", buffer)

    def async_pwrite(self, buffer, filename, file_offset=0):
        return self._begin("write", buffer)

    def sync_pread(self, buffer, filename, file_offset=0):
        self._begin("read", buffer)
        return self.wait()

    def sync_pwrite(self, buffer, filename, file_offset=0):
        self._begin("write", buffer)
        return self.wait()

    def pread(self, buffer, filename, validate, is_async, file_offset=0):
        begun = self._begin("read", buffer)
        return begun if is_async else self.wait()

    def pwrite(self, buffer, filename, validate, is_async, file_offset=0):
        begun = self._begin("write", buffer)
        return begun if is_async else self.wait()

    def read(self, buffer, filename, validate, file_offset=0):
        self.sync_pread(buffer, filename)
        return 0

    def write(self, buffer, filename, validate, file_offset=0):
        self.sync_pwrite(buffer, filename)
        return 0

    def wait(self):
        done, self.pending = self.pending, 0
        if gpu.writes():
            gpu.note("file_wait", str(self.number))
        return done

    def pin_device_tensor(self, tensor):
        return True

    unpin_device_tensor = pin_device_tensor
