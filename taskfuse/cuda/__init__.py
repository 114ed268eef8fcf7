"""The CUDA backend: kernel IR to CUDA C++, to machine code, to launches.

``source`` prints CUDA C++; ``nvrtc`` compiles it, with no GPU and no driver; ``cache`` keeps the machine code; ``driver``, ``arrays`` and
``launch`` run it. CUDA libraries are imported only when they are needed.
"""
