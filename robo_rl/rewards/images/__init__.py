"""Rewards of pictures, and the image-text models behind them."""
