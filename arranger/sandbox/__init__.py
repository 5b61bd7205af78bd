"""The embedded cluster: an in-memory Kubernetes API that real kubectl works with, and simulated kubelets.

`store` implements the API's semantics without HTTP and with an injected time. It uses `admission` of requests,
`garbage` collection, `history`, `listing`, `patching`, `selectors`, and the definitions of kinds in `kinds`, `builtin`,
`validation` and `rules`. `http` serves it (with `discovery`, `tables`, `protobuf` and `status`), `direct` is a client
of it without HTTP. `kubelet` is a client of any API server, including a real one. `embedded` combines all of them.
"""
