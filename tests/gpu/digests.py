"""What measure.py runs with the core alone: tensors and the points at which their
digests are recorded, on the device and as copies on the host."""

TENSORS = """
device = os.environ["TRAINCHECK_TEST_DEVICE"]
torch.manual_seed(1)

def random_of(dtype, count):
    size = torch.empty(0, dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256
    bits = torch.randint(0, high, (count * size,), dtype=torch.uint8)
    return bits.view(dtype).to(device)

DTYPES = [getattr(torch, name) for name in (
    "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 "
    "complex128 bool float8_e5m2 float8_e4m3fn").split()]
tensors = []
for dtype in DTYPES:
    for count in (0, 1, 7, 64, 1000, 40001):
        tensors += [random_of(dtype, count + o)[o:] for o in (0, 1, 2, 3)]
    matrix = random_of(dtype, 6000).view(60, 100)
    tensors += [matrix.t(), matrix[::2, 3:], matrix[:1].expand(5, 100),
                matrix.view(20, 30, 10).permute(2, 0, 1)]
for dtype in (torch.float16, torch.float32, torch.float64):
    tensors.append(torch.randn(301, device=device).to(dtype)._neg_view())
for dtype in (torch.complex64, torch.complex128):
    tensors.append(torch.randn(301, device=device, dtype=dtype).conj())
numbers = [variable(tensor, f"t{i}") for i, tensor in enumerate(tensors)]
core.record_states(core.POINT_PRE_STEP, core.STATE_DATA, numbers, tensors)
copies = [tensor.cpu() for tensor in tensors]
core.record_states(core.POINT_POST_STEP, core.STATE_DATA, numbers, copies)
# Values as observers read them.
small = [i for i, tensor in enumerate(tensors) if tensor.numel() <= 1000]
asked = {core.copy_to_host([tensors[i]]): copies[i] for i in small[:60]}
core.finish_states()
found = dict(core.copies())
for number, copy in asked.items():
    whole = copy.resolve_conj().resolve_neg().contiguous().reshape(-1)
    assert found[number] == [whole.view(torch.uint8).numpy().tobytes()], copy.dtype
print(len(asked), "copies")
"""

# Milliseconds of the device for one launch over so many bytes, the least of ten. The
# device is kept busy until the host has launched it.
BANDWIDTH = """
def least_ms(tensors):
    numbers = [variable(tensor, f"b{i}") for i, tensor in enumerate(tensors)]
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(5_000_000)
        begin.record()
        core.record_states(core.POINT_PRE_STEP, core.STATE_DATA, numbers, tensors)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)

whole = torch.ones(1 << 28, device="cuda")
sums = []
for _ in range(10):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(5_000_000)
    begin.record()
    whole.view(torch.int64).sum()
    end.record()
    torch.cuda.synchronize()
    sums.append(begin.elapsed_time(end))
gpt2 = [(50257, 768), (1024, 768)] + 12 * [
    (768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,),
    (3072, 768), (3072,), (768, 3072), (768,)] + 2 * [(768,)]
gpt2 = [torch.ones(shape, device="cuda") for shape in 2 * gpt2]
print(least_ms([whole]), min(sums), least_ms(gpt2))
core.finish_states()
"""
