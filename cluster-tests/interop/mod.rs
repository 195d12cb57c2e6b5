//! Clients that others wrote.

mod javascript;
mod mosquitto;
mod python;
