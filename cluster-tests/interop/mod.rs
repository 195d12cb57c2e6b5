//! Clients that others wrote.

mod mosquitto;
mod python;
