"""The CUDA backend: kernel IR to CUDA C++, to machine code, to launches.

``source`` prints CUDA C++; ``nvrtc`` compiles it, with no GPU and no driver; ``cache`` keeps what was compiled; ``driver``, ``arrays`` and
``launch`` run it. Nothing here imports a CUDA library before it is needed.
"""
