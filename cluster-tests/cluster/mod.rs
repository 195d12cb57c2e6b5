//! Three nodes.

mod addons;
mod carried;
mod damage;
mod declared;
pub mod disks;
mod drain;
mod founding;
mod give_back;
mod growth;
mod large;
mod membership;
mod node_loss;
mod node_tls;
mod numbered;
mod partition;
mod pause;
mod power;
mod prometheus;
mod redelivery;
mod restart;
mod retained;
mod routing;
mod shared;
mod storm;
mod takeover;
mod upgrade;
mod visible;
