"""What the core needs to find its way in this torch; runs once, embedded.

probe(torch) makes sample tensors and asks Python where their parts are. It
raises whatever is missing: the core then reads tensors by their attributes.
"""

import ctypes
import os

# Each returns an error code and writes through its second parameter.
_FUNCTIONS = {
    "dim": ["aoti_torch_get_dim"],
    "sizes": ["aoti_torch_get_sizes"],
    "strides": ["aoti_torch_get_strides"],
    "dtype": ["aoti_torch_get_dtype"],
    "device_type": ["aoti_torch_get_device_type"],
    "device_index": ["aoti_torch_get_device_index"],
    # The first does not copy a lazily cloned storage.
    "data": ["torch_get_const_data_ptr", "aoti_torch_get_data_ptr"],
    "storage_size": ["aoti_torch_get_storage_size"],
    "storage_offset": ["aoti_torch_get_storage_offset"],
}

# Keys of tensors that have plain sizes and strides. Backends differ in bits of
# their own, which a key includes.
_PLAIN_KEYS = (
    "CPU CUDA XPU MPS HPU PrivateUse1 Meta QuantizedCPU QuantizedCUDA "
    "AutogradCPU AutogradCUDA AutogradXPU AutogradMPS AutogradHPU "
    "AutogradPrivateUse1 AutogradMeta ADInplaceOrView "
    "AutocastCPU AutocastCUDA AutocastXPU AutocastMPS AutocastHPU "
    "AutocastPrivateUse1 Negative Conjugate"
).split()


def _address(library, names):
    for name in names:
        if hasattr(library, name):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    raise LookupError(names[-1])


def _functions():
    # The library is there: this torch was imported from it.
    mode = os.RTLD_NOLOAD | os.RTLD_LAZY
    library = ctypes.CDLL("libtorch_cpu.so", mode=mode)
    return {part: _address(library, names) for part, names in _FUNCTIONS.items()}


def _samples(torch):
    class Subclass(torch.Tensor):
        pass

    def ones(*shape, **kinds):
        return torch.ones(*shape, device=kinds.pop("device", "cpu"), **kinds)

    plain = ones(2, 3)
    parameter = torch.nn.Parameter(ones(4, 5, dtype=torch.float64))
    with torch.inference_mode():
        inference = ones(7, dtype=torch.int32)
    return [
        plain,
        plain[1:, 1:],
        plain.t(),
        plain.as_subclass(Subclass),
        ones(()),
        ones(0, 3),
        parameter,
        parameter.detach(),
        parameter * 2,
        torch.nn.Parameter(ones(2).as_subclass(Subclass)),
        ones(2, dtype=torch.complex64).conj(),
        torch._neg_view(plain),
        ones(3, device="meta"),
        inference,
        torch.empty(2, layout=torch.sparse_coo, device="cpu"),
    ]


def _described(torch, tensor):
    """The tensor, and the numbers to look for: 0 where there is no storage."""
    try:
        storage = tensor.untyped_storage()._cdata
    except NotImplementedError:
        storage = 0
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    return tensor, tensor._cdata, storage, keys


def probe(torch):
    def bits(name):
        key = getattr(torch._C.DispatchKey, name, None)
        return 0 if key is None else torch._C.DispatchKeySet(key).raw_repr()

    plain = 0
    for name in _PLAIN_KEYS:
        plain |= bits(name)
    # A key's number is a bit for what it does and, below all of those, one for
    # its backend.
    backends = (bits("Dense") or 1) - 1
    return {
        "functions": _functions(),
        "samples": [_described(torch, tensor) for tensor in _samples(torch)],
        "object_bytes": torch._C.TensorBase.__basicsize__,
        "plain_keys": plain,
        "backend_keys": backends,
        "cpu_key": bits("CPU") & backends,
        "negative_key": bits("Negative"),
        "conjugate_key": bits("Conjugate"),
    }
