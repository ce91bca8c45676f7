"""What only an NVIDIA GPU can show, checked on the first GPU that this process may use.

``make gpu``, or from the root of the repository ``PYTHONPATH=tests python -m gpu_checks``. No package holds it.
"""
