//! The MQTT Add-ons as `docs/addons.md` states them, on one node; `cluster::addons` and `faults::expiry` have what takes three.

mod counters;
mod metrics;
