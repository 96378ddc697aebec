"""The paper's toy example: why w = 1. Uniform random outputs, the norm to the power w, and the importances it gives."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from potion.runtime import generator_for

__all__ = ["norms_and_importances", "toy_figure"]

EXPONENTS: Final = {0.5: "#cc79a7", 1.0: "#d55e00", 2.0: "#0072b2", 3.0: "#009e73"}


def norms_and_importances(exponent: float, samples: int = 20_000, outputs: int = 10) -> tuple[Tensor, Tensor]:
    r"""Min-max scaled :math:`l_2^w(f)` and :math:`|\partial l_2^w(f) / \partial f_i| = w\, l_2^{w-2}(f)\, |f_i|` (Eq. 6).

    The outputs f are uniform in [0, 1]; they are their own parameters.
    """
    f = torch.rand(samples, outputs, generator=generator_for("toy", 0), dtype=torch.float64)
    norms = f.norm(dim=1, keepdim=True)
    return _scaled((norms**exponent).flatten()), _scaled((exponent * norms ** (exponent - 2) * f.abs()).flatten())


def _scaled(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def toy_figure() -> Any:
    """Both distributions for w = 0.5, 1, 2, 3."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for place, title in enumerate(("norm of the model output, $l_2^w$", "importance values")):
        axes = figure.add_subplot(1, 2, place + 1)
        for exponent, colour in EXPONENTS.items():
            values = norms_and_importances(exponent)[place].numpy()
            name = {1.0: " (XLF)", 2.0: " (LF)"}.get(exponent, "")
            style: dict[str, Any] = {
                "lw": 2.2 if exponent == 1 else 1.4,
                "color": colour,
                "label": f"w = {exponent:g}{name}",
            }
            axes.hist(values, bins=120, range=(0, 1), density=True, histtype="step", **style)
        axes.set(xlabel="min-max scaled value", ylabel="density")
        axes.set_title(title, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    return figure
