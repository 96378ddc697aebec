"""From a view and a template to one HTML file: style, scripts and data inside, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from potion.version import __version__

__all__ = ["render"]

WEB: Final = Path(__file__).parent / "web"
SHARED: Final = ("dom.js", "theme.js", "sort.js", "chart.js")


def render(template: str, view: dict[str, Any], data: Any, scripts: Sequence[str] = ()) -> str:
    """The page of a template; ``data`` is what its scripts read.

    The template escapes every value. Scripts run only with the digest that the page itself names, and the page may load
    nothing: text from a result file could not do harm even where it was taken for markup.
    """
    script = _script(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            view,
            style=Markup((WEB / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            data=Markup(embedded_json(data)),
            version=__version__,
        )
    )


def embedded_json(value: Any) -> str:
    """Compact JSON that can stand in a script element: no character in it means anything to HTML."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _script(names: Sequence[str]) -> str:
    parts = [(WEB / name).read_text(encoding="utf-8") for name in (*SHARED, *names)]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"


def _points(value: float) -> str:
    text = f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")
    return "0.0" if text[1:] == "0.0" else text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["count"] = lambda value: f"{value:,.0f}"
    environment.filters["percent"] = lambda value: f"{value:.1f}\N{NO-BREAK SPACE}%"
    environment.filters["points"] = _points
    environment.filters["share"] = lambda value: f"{value:.0f}" if value >= 10 else f"{value:.2g}"
    return environment
