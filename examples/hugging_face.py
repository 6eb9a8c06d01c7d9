"""Hugging Face: an image classifier over a data set, and the picks back in the data set as a column."""

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image
from PIL import Image as Pictures
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

from tailwise.adapters.huggingface import add_picks, predict, select

# Data and a model that you have already; these stand for "google/vit-base-patch16-224" and a data set of the hub.
small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "patch_size": 8}
config = ViTConfig.from_dict({**small, "image_size": 16, "num_labels": 10})
model = Path("my-classifier")
ViTForImageClassification(config).save_pretrained(model)
ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(model)
digits = load_digits()
pictures = [Pictures.fromarray(image.astype("uint8") * 15) for image in digits.images[:200]]
labels = [int(label) if row < 40 else None for row, label in enumerate(digits.target[:200])]  # 40 are labelled
features = Features({"image": Image(), "label": ClassLabel(10)})
dataset = Dataset.from_dict({"image": pictures, "label": labels}, features=features)

# Tailwise
predictions = predict(model, dataset)
batch = select(dataset, 20, predictions, label="label")
print(batch)
dataset = add_picks(dataset, batch)  # 1 for the best pick, None for rows that were not picked
dataset.filter(lambda row: row["pick"]).save_to_disk("to-label")
