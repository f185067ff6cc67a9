# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "safetensors==0.8.0", "torch==2.13.0"]
# ///
"""Writes the weights of a small module as PyTorch does, and the module's answer to an input.

Run it anywhere; the files go beside this one.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file, save_model

HERE = Path(__file__).parent

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
save_model(module, str(HERE / "module.safetensors"))

example = torch.randn(5, 3)
with torch.no_grad():
    save_file({"input": example, "output": module(example)}, HERE / "answer.safetensors")
