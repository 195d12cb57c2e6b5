//! Three nodes.

mod addons;
mod carried;
mod drain;
mod damage;
mod disks;
mod founding;
mod growth;
mod large;
mod membership;
mod node_loss;
mod numbered;
mod partition;
mod pause;
mod redelivery;
mod restart;
mod routing;
mod storm;
mod takeover;
mod upgrade;
mod visible;
