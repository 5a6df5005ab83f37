"""Parts that the fused kernels share: products in a chosen precision, activations, tiles of weights and observations.

Triton code: the names in capitals are known to its compiler. Tiles hold samples along the first axis, features along
the second, both padded to powers of two by zeros.
"""

import os

import torch
import triton
import triton.language as tl

__all__ = [
    "INTERPRETED",
    "activate",
    "bias_tile",
    "block",
    "differentiate",
    "multiprocessors",
    "narrow",
    "normalize",
    "product",
    "weight_tile",
]

# Triton's interpreter runs the kernels on the CPU, in tests. It cannot multiply bfloat16, and knows no assembly.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


def block(size: int, least: int = 16) -> int:
    """The length of the tile that `size` features go into: a power of two, and no shorter than a product needs."""
    return max(least, triton.next_power_of_2(size))


def multiprocessors(device: torch.device) -> int:
    """How many of the device's multiprocessors there are to fill; on the CPU, a few."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


@triton.jit
def product(a, b, sum, PRECISION: tl.constexpr):
    """`sum` + a @ b, added up in float32; PRECISION is "bf16", "tf32", "tf32x3" or "ieee"."""
    if PRECISION == "bf16":
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        if INTERPRETED:
            sum = tl.dot(a.to(tl.float32), b.to(tl.float32), sum)
        else:
            sum = tl.dot(a, b, sum)
    else:
        sum = tl.dot(a, b, sum, input_precision=PRECISION)
    return sum


@triton.jit
def narrow(x, PRECISION: tl.constexpr):
    """A tile in the type that products take it in, so that it does not occupy more registers than it must."""
    if PRECISION == "bf16":
        x = x.to(tl.bfloat16)
    return x


@triton.jit
def activate(z, TANH: tl.constexpr, PRECISION: tl.constexpr):
    """relu or tanh of float32; the hardware's tanh, of error 2^-11, where the products are no better than that."""
    if TANH:
        if INTERPRETED or PRECISION == "ieee" or PRECISION == "tf32x3":
            y = 1.0 - 2.0 / (tl.exp(2.0 * z) + 1.0)
        else:
            y = tl.inline_asm_elementwise(
                "tanh.approx.f32 $0, $1;", "=r,r", [z], dtype=tl.float32, is_pure=True, pack=1
            )
    else:
        y = tl.maximum(z, 0.0)
    return y


@triton.jit
def differentiate(grad, y, TANH: tl.constexpr):
    """The gradient in front of an activation, from the one behind it and what came out, y."""
    y = y.to(tl.float32)
    if TANH:
        grad = grad * (1.0 - y * y)
    else:
        grad = tl.where(y > 0.0, grad, 0.0)
    return grad


@triton.jit
def weight_tile(weight, first, second, first_stride, second_stride, first_size, second_size):
    """weight[i, j] for i in `first` and j in `second`, 0 beyond the sizes; in the type it is stored in."""
    at = weight + first[:, None] * first_stride + second[None, :] * second_stride
    return tl.load(at, mask=(first[:, None] < first_size) & (second[None, :] < second_size), other=0.0)


@triton.jit
def bias_tile(bias, index, size):
    """bias[i] for i in `index` as float32, 0 beyond `size`."""
    return tl.load(bias + index, mask=index < size, other=0.0).to(tl.float32)


@triton.jit
def normalize(x, mean, variance, limit, feature, D: tl.constexpr):
    """What Normalizer makes of a float32 tile."""
    shift = tl.load(mean + feature, mask=feature < D, other=0.0)
    scale = tl.rsqrt(tl.load(variance + feature, mask=feature < D, other=0.0) + 1e-5)
    x = (x - shift[None, :]) * scale[None, :]
    return tl.minimum(tl.maximum(x, -limit), limit)
