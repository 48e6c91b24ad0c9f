"""The files of a `kernels` repository that are no code of ours: metadata, builder's recipe, card."""

from __future__ import annotations

from typing import Any

__all__ = ["BUILD", "CARD", "FLAKE", "OPS", "PACKAGE_END", "metadata"]

# build.toml, edition 5 of kernel-builder. Compute capabilities: Triton's portable kernels need Ampere.
BUILD = """\
[general]
name = "{name}"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cuda", "cpu"]

[general.hub]
repo-id = "{repo_id}"

[torch-noarch]
pyext = ["py", "json"]
"""

FLAKE = """\
{
  description = "Fused Linear+activation and gated MLP";
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = { self, kernel-builder, ... }:
    kernel-builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; };
}
"""

# What kernel-builder writes for a package without compiled code.
OPS = '''\
"""The namespace of this build's operators."""

import torch

ops = torch.ops.{namespace}


def add_op_namespace_prefix(op_name: str) -> str:
    """The full name of an operator of this build."""
    return f"{namespace}::{{op_name}}"
'''

# `kernels` looks for the layers as an attribute of the package.
PACKAGE_END = """

from . import layers  # noqa: E402
"""

CARD = """\
---
library_name: kernels
license: apache-2.0
---

# {name}

Gated MLP (`down(act(gate(x)) * up(x))`), MLP and Linear+activation with the activation in the product's epilogue,
forward and backward, in bf16, fp16 and fp32. For each shape a dispatcher takes the fastest of these kernels, cuBLAS
with an elementwise kernel, and plain PyTorch. Ampere and newer; on a CPU the same functions in plain PyTorch.

```python
from kernels import Mode, LayerRepository, kernelize, use_kernel_mapping

mapping = {{"LlamaMLP": {{"cuda": LayerRepository("{repo_id}", layer_name="GatedMLP", version={version})}}}}
with use_kernel_mapping(mapping):
    model = kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE, device="cuda")
```

With `"cpu"` in the mapping and `device="cpu"` the same layers run in plain PyTorch.

| layer | takes the place of a module with |
|---|---|
| `GatedMLP` | `gate_proj`, `up_proj`, `down_proj`, `act_fn` |
| `MLP` | `fc1`, `fc2` and `activation_fn`, `act_fn` or `act` |
| `LinearAct` | `dense` and `intermediate_act_fn` |

The activation is the module's own (tanh and erf GELU are different ones); with an activation that is not known here, or
projections that are no plain `nn.Linear` (LoRA, hooks, parametrizations), the module's own parts run.

Functions: `gated_mlp`, `mlp`, `linear_act`, `gated_act`; modules: `GatedMLP`, `MLP`, `LinearAct`.
"""


def metadata(*, identity: str, name: str, version: int, backend: str) -> dict[str, Any]:
    """``metadata.json`` of one built folder; Triton is no dependency to be named, since it comes with torch."""
    return {
        "id": identity,
        "name": name,
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
    }
