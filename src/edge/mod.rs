//! Ways into the process other than MQTT. Here: one HTTP server for metrics, health and a status page.

pub mod health;
mod health_api;
pub mod http;
mod status_page;

pub use health::{ClusterHealth, GroupHealth, HealthSource, ListenerHealth, LoadHealth, MqttHealth, NodeHealth, Status, Waiting};
pub use http::{HttpError, HttpHandle, Surface, serve};

#[cfg(test)]
mod fixture;
