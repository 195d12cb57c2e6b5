//! The manifests of `k8s/` without a cluster: what the chart and the overlays give is held against Kubernetes' schemas and against itself, its
//! `config.xml` against the program, and nodes are started as the pods would be. docs/kubernetes.md is held against all of that.

mod chart;
pub mod guide;
mod manifest;
mod objects;
mod overlays;
mod pod;
mod running;
mod sets;
mod tools;
