"""What an export has beside its data: files that are copied into it as they stand. They import torch and safetensors alone."""
