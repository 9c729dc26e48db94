"""Features as Python makes them: torchvision's evaluation transform, then onnxruntime with one thread.

    prepare MODEL PHOTOS DIRECTORY   lossless copies of some photos, and odd ones, into DIRECTORY
    inputs NPZ DIRECTORY             does NPZ hold what the transform gives for the pictures in DIRECTORY?
    features NPZ DIRECTORY MODEL     compares features; prints the largest relative error and the smallest cosine
    speed MODEL PHOTOS            prints seconds of processor time for all photos, end to end

torchvision itself is used where it is installed; otherwise its definition, on Pillow.
"""
import pathlib
import sys
import time

import numpy as np
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)

try:
    from torchvision import transforms

    evaluation = transforms.Compose([
        transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize(MEAN.tolist(), STD.tolist()),
    ])

    def transform(image):
        return evaluation(image).numpy()

    print("transform: torchvision", file=sys.stderr)
except ImportError:
    def transform(image):
        width, height = image.size
        short, long = min(width, height), max(width, height)
        resized = int(256 * long / short)
        size = (256, resized) if width <= height else (resized, 256)
        image = image.resize(size, Image.BICUBIC)
        left, top = int(round((size[0] - 224) / 2.0)), int(round((size[1] - 224) / 2.0))
        image = image.crop((left, top, left + 224, top + 224))
        pixels = np.asarray(image, np.float32) / np.float32(255)
        return ((pixels - MEAN) / STD).transpose(2, 0, 1)

    print("transform: torchvision's definition, on Pillow", file=sys.stderr)


def load(path):
    return transform(Image.open(path).convert("RGB"))


def session(model):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def features(network, image):
    return network.run(None, {network.get_inputs()[0].name: image[None]})[0].ravel()


def prepare(_model, photos, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    found = sorted(pathlib.Path(photos).glob("*/*.jpg"))
    for number, path in enumerate(found[::10]):
        Image.open(path).convert("RGB").save(directory / f"{number:03}.png")
    image = Image.open(found[0]).convert("RGB")
    image.convert("L").save(directory / "grey.png")
    image.resize((37, 500), Image.NEAREST).save(directory / "tall.png")
    image.resize((224, 225), Image.NEAREST).save(directory / "odd.bmp")
    image.quantize(64).save(directory / "palette.gif")
    image.resize((3000, 1999), Image.BILINEAR).save(directory / "large.webp", lossless=True)
    printed = directory.parent / "printed"
    printed.mkdir()
    for number, path in enumerate(found[::40]):
        Image.open(path).convert("CMYK").save(printed / f"{number:03}.jpg", quality=95)


def inputs(npz, directory):
    with np.load(npz) as data:
        for file, row in zip(data["files"], data["features"]):
            error = np.abs(row.reshape(3, 224, 224) - load(pathlib.Path(directory) / str(file))).max()
            print(file, error)


def compare(npz, directory, model):
    network = session(model)
    worst, cosine = 0.0, 1.0
    with np.load(npz) as data:
        for file, row in zip(data["files"], data["features"]):
            other = features(network, load(pathlib.Path(directory) / str(file)))
            worst = max(worst, float(np.abs(row - other).max() / np.abs(other).max()))
            cosine = min(cosine, float(row @ other / np.linalg.norm(row) / np.linalg.norm(other)))
    print(worst, cosine)


def speed(model, photos):
    network = session(model)
    found = sorted(pathlib.Path(photos).glob("*/*.jpg"))
    features(network, load(found[0]))
    start = time.process_time()
    for path in found:
        features(network, load(path))
    print(time.process_time() - start)


{"prepare": prepare, "inputs": inputs, "features": compare, "speed": speed}[sys.argv[1]](*sys.argv[2:])
