"""Wide ResNet (Zagoruyko and Komodakis, 2016) as in the Goel et al. benchmark; WRN-28-10 for CIFAR-100."""

from __future__ import annotations

from torch import Tensor, nn

from potion.models.normalize import Normalize

__all__ = ["wide_resnet", "wide_resnet28x10"]


class WideBlock(nn.Module):
    """Pre-activation block: BN, ReLU, 3x3, BN, ReLU, 3x3 with the stride (not on the first convolution)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, stride, padding=1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


def wide_resnet(
    classes: int = 100,
    *,
    depth: int = 28,
    widen: int = 10,
    channels: int = 3,
    mean: tuple[float, ...] = (0.5071, 0.4865, 0.4409),
    std: tuple[float, ...] = (0.2673, 0.2564, 0.2762),
) -> nn.Sequential:
    """A wide ResNet over [0, 1] pixels of 32x32 images: three groups of (depth - 4) / 6 blocks, average pool 8."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 6 n + 4, at least 10, got {depth}")
    layers: list[nn.Module] = [Normalize(mean, std, channels), nn.Conv2d(channels, 16, 3, padding=1)]
    inputs = 16
    for outputs, stride in ((16 * widen, 1), (32 * widen, 2), (64 * widen, 2)):
        for block in range((depth - 4) // 6):
            layers.append(WideBlock(inputs, outputs, stride if block == 0 else 1))
            inputs = outputs
    head = [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers, *head)


def wide_resnet28x10(classes: int = 100, **settings: object) -> nn.Sequential:
    """WRN-28-10, the CIFAR-100 victim of the paper."""
    return wide_resnet(classes, depth=28, widen=10, **settings)  # type: ignore[arg-type]
