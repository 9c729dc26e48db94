"""Labels by the exported graphs, in onnxruntime, and by the exported arrays, in NumPy, as JSON.

The directory it runs in holds unseen.npz (features), unseen/ (photos), alone.onnx, whole.onnx, model.npz and model.json.
"""
import json

import numpy as np
import onnxruntime
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def picture(path):
    """torchvision's evaluation transform: shorter side 256, bicubic, centre of 224."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    longer = int(256 * max(width, height) / min(width, height))
    size = (256, longer) if width <= height else (longer, 256)
    left, top = (int(round((side - 224) / 2)) for side in size)
    image = image.resize(size, Image.BICUBIC).crop((left, top, left + 224, top + 224))
    return ((np.asarray(image, np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1)[None]


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    found = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = json.loads(found.get_modelmeta().custom_metadata_map["classes"])
    return found, names


table = np.load("unseen.npz")
files, features = table["files"], table["features"]
answer = {"alone": {}, "whole": {}, "npz": {}}

graph, names = session("alone.onnx")
scores, labels = graph.run(["scores", "label"], {"features": features})
assert (scores.argmax(1) == labels).all()
answer["alone"] = {file: names[label] for file, label in zip(files, labels)}

graph, names = session("whole.onnx")
inlet = graph.get_inputs()[0].name
for file in files:
    (label,) = graph.run(["label"], {inlet: picture("unseen/" + file)})
    answer["whole"][file] = names[int(label[0])]

model = np.load("model.npz")
standard = np.clip((features - model["mean"]) / model["deviation"], -model["clip"], model["clip"])
by_hand = standard @ model["weights"] + model["intercepts"]
assert np.abs(by_hand - scores).max() < 1e-3
answer["npz"] = {file: str(model["classes"][i]) for file, i in zip(files, by_hand.argmax(1))}

told = json.load(open("model.json"))
assert np.array_equal(np.array(told["weights"]), model["weights"])
assert told["about"]["classes"] == names
print(json.dumps(answer))
