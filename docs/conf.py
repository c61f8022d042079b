"""How Sphinx builds these pages: Markdown by MyST, the gallery by sphinx-gallery, the API by numpydoc; `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

from metricgrad import __version__

sys.path.insert(0, str(Path(__file__).parent))  # reference.py

project, author, version = "metricgrad", "The metricgrad developers", __version__
release, copyright = version, author
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_gallery.gen_gallery", "reference"]
exclude_patterns = ["gallery/*.ipynb", "sg_execution_times.rst"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
default_role = "py:obj"  # `x` in a docstring is code, and a link where it names something documented
smartquotes_action = "qe"  # two dashes are those of an option
add_module_names = False
autodoc_typehints = "none"  # numpydoc's sections have the types in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
suppress_warnings = ["config.cache"]
html_theme, html_title = "furo", "metricgrad"
pygments_dark_style = "monokai"  # furo's own underlines names of modules, as if they were links
html_show_sourcelink = False
html_static_path, html_css_files, html_js_files = ["static"], ["pictures.css"], ["pictures.js"]
html_extra_path = ["figure2.html"]  # a page of its own, with its script


def figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures an example holds by name that were not there before: ours are made without pyplot."""
    known = block_vars["example_globals"]
    seen: set[int] = known.setdefault("__figures__", set())
    paths = []
    for figure in [value for value in known.values() if isinstance(value, Figure) and id(value) not in seen]:
        seen.add(id(figure))
        paths.append(next(block_vars["image_path_iterator"]))
        figure.savefig(paths[-1], dpi=110)
    return figure_rst(paths, gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "ignore_pattern": "ten_minutes",  # the cells of a notebook, which has a page of its own
    "image_scrapers": (figures,),
    "reset_modules": (),
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}
