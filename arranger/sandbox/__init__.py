"""The embedded cluster: an in-memory Kubernetes API that real kubectl works against, and simulated kubelets."""
