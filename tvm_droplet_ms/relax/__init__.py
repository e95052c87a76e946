# SPDX-License-Identifier: Apache-2.0
"""DropletStrategy in Relax: a tuning pass and a tuning pipeline.

``import tvm_droplet_ms`` registers the pipeline with TVM as "droplet_tuning"
(``compat/registration.py``).
"""

from .pipeline import droplet_tuning_pipeline
from .tuning_pass import DropletTuneIRMod

__all__ = ["DropletTuneIRMod", "droplet_tuning_pipeline"]
