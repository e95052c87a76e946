# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings of the API reference: ``python -m sphinx -W docs/api site``."""

project = "tvm-droplet-ms"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "alabaster"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # The docstrings have them.
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
