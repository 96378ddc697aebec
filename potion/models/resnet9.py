"""ResNet-9 as in the Goel et al. benchmark: 2,276,224 parameters for ten classes of RGB images."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from potion.models.normalize import Normalize

__all__ = ["resnet9"]


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.body(x))


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int | None = None) -> nn.Sequential:
    """Convolution (bias, starts at 0), batch norm, CELU(0.075)."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 if padding is None else padding)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.CELU(0.075))


def _residual(channels: int) -> Residual:
    return Residual(nn.Sequential(_conv(channels, channels), _conv(channels, channels)))


def resnet9(
    classes: int = 10,
    *,
    channels: int = 3,
    width: int = 64,
    mean: tuple[float, ...] = (0.4914, 0.4822, 0.4465),
    std: tuple[float, ...] = (0.2470, 0.2435, 0.2616),
) -> nn.Sequential:
    """ResNet-9 over [0, 1] pixels; ``width`` is the number of channels after the first convolution (64 in the paper)."""
    return nn.Sequential(
        Normalize(mean, std, channels),
        _conv(channels, width),
        _conv(width, 2 * width, kernel=5, stride=2),
        _residual(2 * width),
        _conv(2 * width, 4 * width),
        nn.MaxPool2d(2),
        _residual(4 * width),
        _conv(4 * width, 2 * width, padding=0),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes, bias=False),
    )
