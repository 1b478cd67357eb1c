"""What an export consists of, and how the numbers of its tables can be written. int8: a byte each, with a scale and an offset a row."""

FORMATS = ("fp32", "fp16", "bf16", "int8")
MODEL_FILE, CARD_FILE, SERVE_FILES = "model.json", "README.md", ("serve.py", "lookup.py")
PROGRAM_FILE, DENSE_FILE, ONNX_FILE, WORDS_FILE = "dense.pt2", "dense.safetensors", "dense.onnx", "vocabulary.safetensors"
VERSION = 1
