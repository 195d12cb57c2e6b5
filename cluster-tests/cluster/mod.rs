//! Three nodes.

mod addons;
mod carried;
mod damage;
mod disks;
mod founding;
mod large;
mod node_loss;
mod numbered;
mod pause;
mod redelivery;
mod restart;
mod routing;
mod storm;
mod takeover;
mod upgrade;
mod visible;
