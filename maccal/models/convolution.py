"""Conv: torch's convolution, with a faster gradient of its weights where that is slow.

On a CPU, in bf16 and on images of 4 x 4 pixels or fewer, the gradient of the weights takes up to
seven times as long as the rest of the layer. There it is one matrix product instead. All else is
torch's own: the numbers going forward, the gradient of the images, and every other case.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

SMALL = 16  # pixels of an image whose weights get their gradient by a matrix product


class Conv(nn.Conv2d):
    """A square kernel without bias; the image keeps its size, or is divided by the stride."""

    def __init__(self, width_in: int, width: int, size: int, stride: int = 1) -> None:
        super().__init__(width_in, width, size, stride, size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.gains(x):
            both = x.to(torch.bfloat16), self.weight.to(torch.bfloat16)
            y: Tensor = SmallImages.apply(*both, self.stride[0])  # type: ignore[no-untyped-call]
            return y
        return super().forward(x)

    def gains(self, x: Tensor) -> bool:
        """Whether the matrix product is faster: in training, as far as we measured."""
        if not torch.is_grad_enabled() or not self.weight.requires_grad:
            return False
        if torch.compiler.is_compiling() or x.device.type != "cpu":
            return False
        in_bf16 = torch.is_autocast_enabled("cpu")
        in_bf16 &= torch.get_autocast_dtype("cpu") == torch.bfloat16
        height, width = (-(-side // self.stride[0]) for side in x.shape[-2:])
        return in_bf16 and height * width <= SMALL


class SmallImages(torch.autograd.Function):
    """A convolution; the gradient of its weights is one matrix product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        grad_weight = weight_gradient(x, gradient, weight.shape[-1], ctx.stride)
        if not ctx.needs_input_grad[0]:
            return None, grad_weight, None
        how = ctx.stride, weight.shape[-1] // 2
        grad_x = conv2d_input(x.shape, weight, gradient, *how)  # type: ignore[no-untyped-call]
        return grad_x, grad_weight, None


def weight_gradient(x: Tensor, gradient: Tensor, size: int, stride: int) -> Tensor:
    """The sum over all positions of the gradient there, times the window that the kernel saw."""
    windows = windows_of(x, size, stride, gradient.shape[-2:])
    outputs = gradient.permute(0, 2, 3, 1).flatten(0, 2)
    product = outputs.T @ windows.flatten(0, 2).flatten(1)
    return product.view(len(product), size, size, -1).permute(0, 3, 1, 2)


def windows_of(x: Tensor, size: int, stride: int, positions: torch.Size) -> Tensor:
    """images x positions x size x size x channels: what the kernel sees at each position."""
    padded = F.pad(x.permute(0, 2, 3, 1), [0, 0] + [size // 2] * 4).contiguous()
    image, line, pixel, channel = padded.stride()
    shape = (len(x), *positions, size, size, x.shape[1])
    steps = (image, stride * line, stride * pixel, line, pixel, channel)
    return padded.as_strided(shape, steps)
