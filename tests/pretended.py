"""A device that is not there, with real numbers: tests of code for GPUs on a machine without one.

    with pretended() as device:          a CUDA device
        x = torch.ones(3).to(device)     says x.device == device; its numbers are in main memory
        x + torch.ones(3)                raises, as a GPU would

Every operation is run twice. Torch's FakeTensorMode, which has shapes and devices but no numbers,
raises on any mixing of devices and says where the result is. Then the numbers are computed on the
processor. So code runs to its end, and its results can be compared bit by bit with those of the
processor. What FakeTensorMode cannot follow, since a shape depends on the numbers, is checked here:
all tensors of more than one number must be on one device.
"""

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
# indices and masks may be on the processor; what is copied may be anywhere
ANYWHERE = (*INDEXING, aten.copy_.default)


class Pretended(Tensor):
    """A tensor that says it is on the device, and the tensor in main memory behind it."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> "Pretended":
        self = Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device="meta",  # what torch's own code sees: it would start a real GPU
            requires_grad=False,
        )
        self.numbers = real
        return self

    @property
    def device(self):
        return CUDA

    @property
    def is_meta(self):
        return False

    def new_tensor(self, data, dtype=None):
        return torch.tensor(data, dtype=dtype or self.dtype, device=CUDA)

    def __setitem__(self, key, value):
        if not isinstance(value, Tensor):
            value = self.new_tensor(value)
        super().__setitem__(key, value)

    # a look at the numbers waits for a device, and there is none to wait for
    def tolist(self):
        return self.numbers.tolist()

    def item(self):
        return self.numbers.item()

    def __float__(self):
        return float(self.numbers)

    def __int__(self):
        return int(self.numbers)

    def __index__(self):
        return int(self.numbers)

    def __bool__(self):
        return bool(self.numbers)

    def __deepcopy__(self, memo):
        new = Pretended(self.numbers.clone()).requires_grad_(self.requires_grad)
        new._is_param = getattr(self, "_is_param", False)
        memo[id(self)] = new
        return new

    def __repr__(self) -> str:
        return f"Pretended({self.numbers})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Hands every operation to `run`, those that make new tensors too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


FAKE = FakeTensorMode(allow_non_fake_inputs=False)


def on_device(device: object) -> bool:
    """Torch's own code, when it makes a tensor of a number, asks for the device that it sees."""
    return isinstance(device, torch.device) and device.type in ("cuda", "meta")


def run(func, args, kwargs):
    """The operation on shapes and devices, then on numbers."""
    parts, _ = tree_flatten((args, kwargs))
    if not any(isinstance(part, Pretended) or on_device(part) for part in parts):
        with unset_fake_temporarily():
            return func(*args, **kwargs)
    check_indices(func, args)
    places = places_of(func, args, kwargs)
    real_args, real_kwargs = tree_map(as_real, (args, kwargs))
    with unset_fake_temporarily():
        result = func(*real_args, **real_kwargs)
    given = {id(part.numbers): part for part in parts if isinstance(part, Pretended)}
    results, spec = tree_flatten(result)
    moved = [put(one, place, given) for one, place in zip(results, places(results), strict=True)]
    return spec.unflatten(moved)


def as_real(part):
    """What the processor is given."""
    if isinstance(part, Pretended):
        return part.numbers
    return torch.device("cpu") if on_device(part) else part


def put(result, place, given):
    """The result where it belongs; what was changed in place is the tensor that it was."""
    if not isinstance(result, Tensor) or not on_device(place):
        return result
    return given[id(result)] if id(result) in given else Pretended(result)


def places_of(func, args, kwargs):
    """Where the results are; raises where devices are mixed."""
    with unset_fake_temporarily(), FAKE:
        try:
            fakes = tree_map(as_fake, (args, kwargs))
            results, _ = tree_flatten(func(*fakes[0], **fakes[1]))
        except (DynamicOutputShapeException, DataDependentOutputException):
            return one_place(func, args, kwargs)
    devices = [getattr(one, "device", None) for one in results]
    return lambda _: devices


def check_indices(func, args):
    """A tensor in main memory has its indices there too, which FakeTensorMode does not look at."""
    if func not in INDEXING or isinstance(args[0], Pretended):
        return
    if any(isinstance(index, Pretended) for index in args[1]):
        raise RuntimeError(f"{func}: indices on {CUDA}, and the tensor is in main memory")


def as_fake(part):
    if not isinstance(part, Tensor):
        return CUDA if on_device(part) else part
    return torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device=part.device)


def one_place(func, args, kwargs):
    parts, _ = tree_flatten((args, kwargs))
    tensors = [part for part in parts if isinstance(part, Tensor) and part.ndim]
    devices = {part.device for part in tensors}
    if len(devices) > 1 and func not in ANYWHERE:
        raise RuntimeError(f"{func}: tensors on different devices, {sorted(map(str, devices))}")
    place = next((part.device for part in parts if isinstance(part, Tensor)), CUDA)
    return lambda results: [place] * len(results)


@contextmanager
def guarded() -> Iterator[None]:
    """What torch asks for the current device before it indexes, which a build without GPUs lacks.

    In its place stands that of the processor, which does nothing.
    """
    libraries = sorted((Path(torch.__file__).parent / "lib").glob("libc10.*"))
    if not libraries:
        pytest.skip("this build of torch has no library libc10")
    library = ctypes.CDLL(str(libraries[0]))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    before = guards[1]
    guards[1] = guards[0]
    try:
        yield
    finally:
        guards[1] = before


@contextmanager
def pretended() -> Iterator[torch.device]:
    """A CUDA device for a while."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with guarded(), FAKE, Pretending(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "User provided device_type of 'cuda'")
            yield CUDA
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
