"""The command line: any stage of a fusion from a file, simulation, proof, compilation, the cache. ``python -m taskfuse --help`` lists the commands."""
