"""The embedded cluster: an in-memory Kubernetes API that real kubectl works against, and simulated kubelets.

`store` has the API's semantics (with `admission` of what comes in, `garbage` for what goes, `history`, `listing`,
`patching`, `selectors`, and what is known of kinds in `kinds`, `builtin`, `validation` and `rules`), without HTTP and
with time handed in. `http` serves it (with `discovery`, `tables`, `protobuf` and `status`), `direct` is a client of it
without HTTP. `kubelet` is a client of any API server, the real one included. `embedded` puts all of it together.
"""
