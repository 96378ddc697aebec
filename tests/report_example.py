"""A heal's result file with everything that its page can show."""

from __future__ import annotations

import base64
import io

from PIL import Image

NASTY = "</script><img src=x onerror=alert(1)>"


def png(colour):
    """A small picture, as base64."""
    buffer = io.BytesIO()
    Image.new("RGB", (28, 28), colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def bare_result():
    """What ``HealResult.to_dict`` makes, and nothing more."""
    accuracies = [0.9, 0.9, 0.82, 0.63, 0.41, 0.27, 0.18]
    trace = [
        {"s": 0.0008 * 1.1**k, "alpha": 120.0 - 9 * k, "selected": 1752 + 130 * k, "known_accuracy": accuracy}
        for k, accuracy in enumerate(accuracies)
    ]
    return {
        "method": "xlf",
        "known": 50,
        "status": "healed",
        "summary": "xlf: healed; 2,532 weights were dampened.",
        "known_accuracy": 0.9,
        "search": {"rho": 0.2, "start": 0.04, "step": 1.1, "strategy": "sequential", "max_steps": 500},
        "chosen": trace[-1],
        "trace": trace,
        "steps": len(trace),
        "weights_changed": trace[-1]["selected"],
        "timings": {"known poison": 0.03, "retain importances": 3.3, "forget importances": 0.14, "search": 0.08},
    }


def full_result(text="poison"):
    """The same with all the optional keys; ``text`` stands in every text that comes from outside."""
    return {
        **bare_result(),
        "scores": {
            "before": {"clean_accuracy": 91.05, "clean_label_accuracy": 10.0, "attack_success_rate": 100.0},
            "after": {"clean_accuracy": 88.8, "clean_label_accuracy": 82.1, "attack_success_rate": 12.4},
            "n_clean": 2000,
            "n_triggered": 2000,
        },
        "warnings": [f"{text}: one known sample heals partly."],
        "pictures": [{"title": f"{text} {k}", "caption": text, "png_base64": png((60 * k, 90, 160))} for k in range(4)],
        "layers": [
            {"name": f"{text}.{k}.weight", "changed": changed, "total": 36864, "mean_factor": 0.31}
            for k, changed in enumerate([3, 0, 120, 900, 1509, 0])
        ],
        "suspects": [{"index": 7 * k, "file": f"{text}-{k}.png", "score": 1 / (k + 1)} for k in range(12)],
        "classes": [text, "bag"],
        "known_files": [f"{text}-{k}.png" for k in range(50)],
        "inputs": {"model": "resnet9", "data": text, text: 1},
        "provenance": {"time": "2026-11-15T11:41:02+00:00", "versions": {"torch": "2.11"}, "device": text, "seed": 0},
    }
