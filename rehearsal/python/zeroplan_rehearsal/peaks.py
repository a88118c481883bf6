"""Peaks of each phase, without changing the peaks that the program reads.

torch keeps one peak since somebody reset it. Here it is reset at every phase, and what it was before is kept: the
program's own questions are answered with the largest since *its* last reset.
"""


class Peaks:
    def __init__(self, torch):
        self.torch = torch
        self.ask = torch._C._cuda_memoryStats
        self.reset = torch._C._cuda_resetPeakMemoryStats
        self.kept = {}  # by device: {(name, pool): peak}
        self.whole = {}  # of the run: the same, whatever the program resets
        self.phase = {}  # of the phase up to the program's last reset: DeepSpeed resets while it makes its engine
        torch._C._cuda_memoryStats = self._asked_by_program
        torch._C._cuda_resetPeakMemoryStats = self._reset_by_program

    def _raise(self, kept, stats):
        for name, pools in stats.items():
            if not isinstance(pools, dict):
                continue  # a count
            for pool, numbers in pools.items():
                if isinstance(numbers, dict):
                    key = (name, pool)
                    kept[key] = max(kept.get(key, 0), numbers["peak"])

    def _asked_by_program(self, device):
        return self._with_peaks(self.ask(device), self.kept.get(device, {}))

    @staticmethod
    def _with_peaks(stats, kept):
        for (name, pool), peak in kept.items():
            numbers = stats[name][pool]
            numbers["peak"] = max(numbers["peak"], peak)
        return stats

    def _reset_by_program(self, device):
        stats = self.ask(device)
        for kept in (self.whole, self.phase):
            self._raise(kept.setdefault(device, {}), stats)
        self.kept.pop(device, None)
        self.reset(device)

    def take(self):
        """The current device's numbers with peaks since the last call; None before CUDA has begun."""
        if not self.torch.cuda.is_initialized():
            return None
        device = self.torch.cuda.current_device()
        stats = self.ask(device)
        for kept in (self.kept, self.whole):
            self._raise(kept.setdefault(device, {}), stats)
        self.reset(device)
        return self._with_peaks(stats, self.phase.pop(device, {}))

    def of_run(self, name):
        device = self.torch.cuda.current_device()
        return self.whole.get(device, {}).get((name, "all"), 0)
