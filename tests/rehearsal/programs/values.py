"""Values of whole numbers that a program may branch on are those of a GPU: an AssertionError names what is not."""
import torch


def moved(tokens, dtype):
    """Copied to the GPU, cast there or on the way, and brought back: all of it stays as it was."""
    host = torch.arange(2 * tokens, dtype=torch.int64).remainder(7).to(dtype).reshape(2, tokens)
    expected = int(host.sum())
    on_card = {
        "cuda": host.cuda(), "to": host.to("cuda", non_blocking=True), "as_tensor": torch.as_tensor(host, device="cuda"),
        "tensor": torch.tensor(host.tolist(), dtype=dtype, device="cuda"), "copy_": torch.empty_like(host, device="cuda").copy_(host),
        "pinned": host.pin_memory().to("cuda", non_blocking=True), "clone": host.cuda().clone(), "sent as int32": host.to("cuda", torch.int32),
    }
    for name, tensor in on_card.items():
        assert int(tensor.sum()) == expected, (name, tokens, dtype)
        assert int(tensor.cpu().sum()) == expected, (name, "brought back", tokens, dtype)
        assert int(tensor.cpu()[1, -1]) == int(host[1, -1]), (name, "last", tokens, dtype)
        assert int(tensor.to(torch.bool).sum()) == int((host != 0).sum()), (name, "truth", tokens, dtype)


for tokens in (1, 100, 4096, 4097, 10000, 300000):
    for dtype in (torch.int64, torch.int32, torch.uint8):
        moved(tokens, dtype)
mask = torch.ones((4, 8192), dtype=torch.int64).cuda()
assert mask.to(torch.bool).all(), "a mask without padding is none"
mask[3, 8000:] = 0
assert not mask.to(torch.bool).all() and int(mask.sum()) == 4 * 8192 - 192, "a mask with padding is one"

# A phase keeps the peak that it had before the program reset it, and the program reads its own.
from zeroplan_rehearsal import phases  # noqa: E402

phases.tracker.peaks.take()
large = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
del large
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() < 64 << 20, "the program's own peak is since its reset"
peak = phases.tracker.peaks.take()["allocated_bytes"]["all"]["peak"]
assert peak >= 64 << 20, ("the phase's peak", peak)
peak = phases.tracker.peaks.take()["allocated_bytes"]["all"]["peak"]
assert peak < 64 << 20, ("the next phase's peak", peak)
