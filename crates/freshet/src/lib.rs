//! A drop-in SQL cache: the binary, its configuration and its demo.
