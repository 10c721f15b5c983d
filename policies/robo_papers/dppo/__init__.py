"""DPPO: a diffusion or flow policy that is refined by reward, through each step in which it makes a chunk of actions."""
