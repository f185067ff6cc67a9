# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "ml_dtypes==0.6.0",
#     "numpy==2.4.6",
#     "safetensors==0.8.0",
#     "scikit-learn==1.9.1",
#     "scipy==1.17.1",
#     "threadpoolctl==3.8.0",
# ]
# ///
"""Train a small digit classifier and write the files beside this script.

    python train.py [FOLDER]    (FOLDER: where to write; default: this folder)

The model is a 64 -> 128 -> 64 -> 10 network with ReLU between the layers. Its
input is an 8x8 image with pixels 0..16, divided by 16. Weights have PyTorch's
layout, so that layer(x) = x @ weight.T + bias.

On one machine every run writes the same bytes. On another kind of CPU float
sums may round differently, and training then ends in slightly other weights.
"""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save as serialize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

SEED = 0
HELD_OUT = 360
LAYERS = 3


def train(images, labels):
    classifier = MLPClassifier(
        hidden_layer_sizes=(128, 64), alpha=0.01, max_iter=200, random_state=SEED
    )
    classifier.fit(images, labels)
    tensors = {}
    for i, (weight, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_)):
        tensors[f"layers.{i}.weight"] = np.ascontiguousarray(weight.T, np.float32)
        tensors[f"layers.{i}.bias"] = bias.astype(np.float32)
    return tensors


def logits(tensors, images):
    x = images
    for i in range(LAYERS):
        weight, bias = (
            tensors[f"layers.{i}.{part}"].astype(np.float32) for part in ("weight", "bias")
        )
        x = x @ weight.T + bias
        if i < LAYERS - 1:
            x = np.maximum(x, 0)
    return x


def save(tensors, path, metadata):
    # The package orders metadata keys at random: retry until they are as given.
    while True:
        data = serialize(tensors, metadata=metadata)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        if list(header["__metadata__"]) == list(metadata):
            break
    path.write_bytes(data)
    print(f"{path.name}: {path.stat().st_size} bytes")
    for name, tensor in tensors.items():
        print(f"    {name} {tensor.dtype} {list(tensor.shape)}")


def save_sharded(tensors, folder):
    folder.mkdir(exist_ok=True)
    weight_map = {}
    for i in range(LAYERS):
        shard = f"model-{i + 1:05}-of-{LAYERS:05}.safetensors"
        layer = {name: t for name, t in tensors.items() if name.startswith(f"layers.{i}.")}
        save(layer, folder / shard, {"format": "pt"})
        weight_map.update(dict.fromkeys(layer, shard))
    index = {
        "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
        "weight_map": weight_map,
    }
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = load_digits(return_X_y=True)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    train_images = (train_pixels / 16).astype(np.float32)
    test_images = (test_pixels / 16).astype(np.float32)

    tensors = train(train_images, train_labels)
    # astype rounds to nearest, ties to even.
    tensors_bf16 = {name: t.astype(ml_dtypes.bfloat16) for name, t in tensors.items()}
    expected = logits(tensors, test_images)
    expected_bf16 = logits(tensors_bf16, test_images)
    accuracy = np.mean(expected.argmax(axis=1) == test_labels)
    accuracy_bf16 = np.mean(expected_bf16.argmax(axis=1) == test_labels)

    save(tensors, folder / "digits.safetensors", {"format": "pt"})
    save(tensors_bf16, folder / "digits-bf16.safetensors", {"format": "pt"})
    save_sharded(tensors, folder / "sharded")
    held_out = {
        "images": test_pixels.astype(np.uint8),
        "labels": test_labels.astype(np.uint8),
        "logits": expected,
        "logits_bf16": expected_bf16,
    }
    metadata = {"accuracy": f"{accuracy:.4f}", "accuracy_bf16": f"{accuracy_bf16:.4f}"}
    save(held_out, folder / "held_out.safetensors", metadata)
    print(f"held-out accuracy: {accuracy:.4f} (F32), {accuracy_bf16:.4f} (BF16)")


if __name__ == "__main__":
    # One thread: the order of float additions, and so every byte, stays the same.
    with threadpool_limits(1):
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
