"""Policies as files that act without robo-rl: ONNX, TorchScript, weights."""
